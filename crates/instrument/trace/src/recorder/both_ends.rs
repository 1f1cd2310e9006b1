//! The first and the last of many: a program that goes on for days is not to fill the memory, and what its VM's start and end
//! hung on is in these.

use std::collections::VecDeque;

/// Things in their order, of which at most `MOST` are kept from the beginning on, and as many up to the end.
#[derive(Debug)]
pub(super) struct BothEnds<T, const MOST: usize> {
    first: Vec<T>,
    later: VecDeque<T>,
    /// How many there were between them.
    lost: u64,
}

impl<T, const MOST: usize> Default for BothEnds<T, MOST> {
    fn default() -> Self {
        Self { first: Vec::new(), later: VecDeque::new(), lost: 0 }
    }
}

impl<T, const MOST: usize> BothEnds<T, MOST> {
    /// The next one.
    pub(super) fn push(&mut self, one: T) {
        if self.first.len() < MOST {
            self.first.push(one);
            return;
        }
        if self.later.len() == MOST {
            self.later.pop_front();
            self.lost += 1;
        }
        self.later.push_back(one);
    }

    /// How many there were.
    pub(super) fn count(&self) -> usize {
        self.first.len() + self.lost as usize + self.later.len()
    }

    /// How many of them are not kept.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// One of them by its number, if it is kept.
    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        if number < self.first.len() {
            return self.first.get_mut(number);
        }
        self.later.get_mut(number.checked_sub(self.first.len() + self.lost as usize)?)
    }

    /// What is kept, in its order.
    pub(super) fn into_vec(self) -> Vec<T> {
        let mut all = self.first;
        all.extend(self.later);
        all
    }
}
