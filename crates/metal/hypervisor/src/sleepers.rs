//! The threads that sleep. One is found by the word that it sleeps for, and by the moment until which it sleeps. Without
//! locks, hardware or a clock: the caller has a lock around it, and says what time it is.
//!
//! A VM decides how many of its threads sleep, and when. So no call looks at all sleepers: those that sleep for words
//! are in `BUCKETS` lists, by the address of the word, and those that wake by themselves are also in a tree, in the
//! order of the moments. A call for a word looks at one list. A call for a moment looks at the first of the tree.

use intrusive_collections::{
    KeyAdapter, LinkedList, LinkedListLink, RBTree, RBTreeLink, UnsafeRef,
};

use crate::needs::MOST_VMS;
use links::{OfMoment, OfWord};

/// How many lists there are: a power of two. So a list has few sleepers also where there are as many VMs as there may be.
const BUCKETS: usize = (MOST_VMS / 2).next_power_of_two();

/// A thread that sleeps, as it is found: a part of the thread.
#[derive(Debug)]
pub struct Sleeper {
    of_word: LinkedListLink,
    of_moment: RBTreeLink,
    /// The address of the word that it sleeps for.
    word: usize,
    /// When it wakes by itself, in ticks; `u64::MAX` for never.
    deadline: u64,
}

/// How the lists and the tree go through a [`Sleeper`].
mod links {
    #![expect(clippy::expl_impl_clone_on_copy, reason = "the macro writes it so")]

    use intrusive_collections::{LinkedListLink, RBTreeLink, UnsafeRef, intrusive_adapter};

    use super::Sleeper;

    intrusive_adapter!(pub(super) OfWord = UnsafeRef<Sleeper>: Sleeper { of_word => LinkedListLink });
    intrusive_adapter!(pub(super) OfMoment = UnsafeRef<Sleeper>: Sleeper { of_moment => RBTreeLink });
}

impl<'a> KeyAdapter<'a> for OfMoment {
    type Key = u64;

    fn get_key(&self, sleeper: &'a Sleeper) -> u64 {
        sleeper.deadline
    }
}

impl Sleeper {
    /// That of a thread that does not sleep.
    #[expect(clippy::new_without_default, reason = "a default is not `const`")]
    pub const fn new() -> Self {
        let (of_word, of_moment) = (LinkedListLink::new(), RBTreeLink::new());
        Self { of_word, of_moment, word: 0, deadline: u64::MAX }
    }
}

/// All threads that sleep.
pub struct Sleepers {
    of_words: [LinkedList<OfWord>; BUCKETS],
    of_moments: RBTree<OfMoment>,
}

/// The list of those that sleep for a word. Words of one kind lie at equal distances, mostly of a power of two: the
/// product spreads them (Knuth, The Art of Computer Programming, volume 3, 6.4).
const fn bucket(word: usize) -> usize {
    let product = (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> (u64::BITS - BUCKETS.trailing_zeros())) as usize
}

impl Sleepers {
    /// Nothing sleeps.
    #[expect(clippy::new_without_default, reason = "a default is not `const`")]
    pub const fn new() -> Self {
        Self {
            of_words: [const { LinkedList::new(OfWord::NEW) }; BUCKETS],
            of_moments: RBTree::new(OfMoment::NEW),
        }
    }

    /// A thread sleeps for the word at that address, and until `deadline` at the latest; `u64::MAX` is never.
    ///
    /// # Safety
    ///
    /// `sleeper` is not in here. It stays until it is taken, and nothing else uses it meanwhile.
    pub unsafe fn add(&mut self, sleeper: *mut Sleeper, word: usize, deadline: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            ((*sleeper).word, (*sleeper).deadline) = (word, deadline);
            self.of_words[bucket(word)].push_back(UnsafeRef::from_raw(sleeper));
            if deadline != u64::MAX {
                self.of_moments.insert(UnsafeRef::from_raw(sleeper));
            }
        }
    }

    /// Takes one that sleeps for the word at that address: of several, the one that has slept longest.
    pub fn take_for(&mut self, word: usize) -> Option<*mut Sleeper> {
        let mut cursor = self.of_words[bucket(word)].front_mut();
        while cursor.get()?.word != word {
            cursor.move_next();
        }
        let sleeper = UnsafeRef::into_raw(cursor.remove()?);
        // SAFETY: the promise of `add`: it is there, and in the tree if it is linked there.
        unsafe {
            if (*sleeper).of_moment.is_linked() {
                self.of_moments.cursor_mut_from_ptr(sleeper).remove();
            }
        }
        Some(sleeper)
    }

    /// Whether there is one that sleeps for the word at that address.
    pub fn has_one_for(&self, word: usize) -> bool {
        self.of_words[bucket(word)].iter().any(|sleeper| sleeper.word == word)
    }

    /// Takes one whose deadline has come at `now`: of several, the one whose deadline came first.
    pub fn take_due(&mut self, now: u64) -> Option<*mut Sleeper> {
        let mut first = self.of_moments.front_mut();
        if first.get()?.deadline > now {
            return None;
        }
        let sleeper = UnsafeRef::into_raw(first.remove()?);
        // SAFETY: the promise of `add`: it is there, and in the list of its word.
        unsafe {
            let list = &mut self.of_words[bucket((*sleeper).word)];
            list.cursor_mut_from_ptr(sleeper).remove();
        }
        Some(sleeper)
    }

    /// When the first wakes by itself; `u64::MAX` for never.
    pub fn next(&self) -> u64 {
        self.of_moments.front().get().map_or(u64::MAX, |sleeper| sleeper.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, bucket};

    #[test]
    fn words_at_equal_distances_are_spread_over_the_lists() {
        const MEAN: usize = 16;
        const WORDS: usize = MEAN * BUCKETS;
        for distance in [4, 16, 64, 128, 192, 4096, 1 << 16] {
            let mut lengths = [0; BUCKETS];
            (0..WORDS).for_each(|word| lengths[bucket(0x4000_0000 + word * distance)] += 1);
            let longest = lengths.iter().max();
            assert!(longest <= Some(&(3 * MEAN)), "{longest:?} at a distance of {distance}");
        }
    }
}
