//! Which interrupts get a list register, if there are more interrupts than registers.

use crate::MAX_LIST_REGISTERS;

/// An interrupt that would have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// Whether the guest takes nothing of its group now: behind all that it would take.
    pub(crate) masked: bool,
    pub(crate) priority: u8,
    pub(crate) intid: u32,
}

/// The first of those that were offered, in order.
#[derive(Debug)]
pub(crate) struct First {
    candidates: [Candidate; MAX_LIST_REGISTERS],
    len: usize,
}

impl First {
    pub(crate) const fn new() -> Self {
        let none = Candidate { masked: false, priority: 0, intid: 0 };
        Self { candidates: [none; MAX_LIST_REGISTERS], len: 0 }
    }

    pub(crate) fn as_slice(&self) -> &[Candidate] {
        &self.candidates[..self.len]
    }

    /// Puts `candidate` in its place; gives back the one that is now behind the first `limit`.
    pub(crate) fn offer(&mut self, candidate: Candidate, limit: usize) -> Option<Candidate> {
        let limit = limit.min(MAX_LIST_REGISTERS);
        // So are most, where there are many.
        if self.len == limit && self.as_slice().last().is_none_or(|last| *last < candidate) {
            return Some(candidate);
        }
        let place = self.as_slice().partition_point(|other| *other < candidate);
        if place >= limit {
            return Some(candidate);
        }
        let last = self.len == limit;
        let behind = last.then(|| self.candidates[limit - 1]);
        if !last {
            self.len += 1;
        }
        self.candidates[place..self.len].rotate_right(1);
        self.candidates[place] = candidate;
        behind
    }

    /// Gives back the last, if there are more than `limit`.
    pub(crate) fn cut(&mut self, limit: usize) -> Option<Candidate> {
        if self.len <= limit {
            return None;
        }
        self.len -= 1;
        Some(self.candidates[self.len])
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_are_kept_in_order_and_the_others_given_back(
            offered in prop::collection::btree_set((any::<bool>(), 0..4_u8, 0..40_u32), 0..40),
            order in any::<prop::sample::Index>(),
            limit in 1..=MAX_LIST_REGISTERS,
        ) {
            let mut all: Vec<_> = offered
                .into_iter()
                .map(|(masked, priority, intid)| Candidate { masked, priority, intid })
                .collect();
            if !all.is_empty() {
                let middle = order.index(all.len());
                all.rotate_left(middle);
            }
            let mut first = First::new();
            let mut behind: Vec<_> =
                all.iter().filter_map(|candidate| first.offer(*candidate, limit)).collect();
            all.sort();
            behind.sort();
            let kept = all.len().min(limit);
            prop_assert_eq!(first.as_slice(), &all[..kept]);
            prop_assert_eq!(&behind[..], &all[kept..]);
        }
    }
}
