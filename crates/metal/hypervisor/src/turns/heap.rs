//! Shares in an order, of which the first is taken: a leftist heap, linked through them (Knuth, The Art of Computer
//! Programming, volume 3, 5.2.3).
//!
//! No node comes before the one above it. The *rank* of a node is the number of nodes on the way down to its right, and
//! that of a node on the left is at least that of its neighbour on the right. So of `n` shares the way to the right has
//! at most `log2(n + 1)`, and each step here goes along such ways: however many shares there are, a processor has soon
//! found the one that it takes from. With one or two shares, which is what most switches find, nothing is gone along. No
//! tree that is kept balanced does that; and the times go round, so they are no key that is ordered for good.

use core::marker::PhantomData;
use core::ptr::null_mut;

use super::is_before;
use super::share::Share;

/// An order of shares.
pub(super) trait Order {
    /// Whether `one` comes before `other`.
    fn precedes(one: &Share, other: &Share) -> bool;
}

/// By virtual time.
#[derive(Debug)]
pub(super) enum ByVirtualTime {}

impl Order for ByVirtualTime {
    #[inline]
    fn precedes(one: &Share, other: &Share) -> bool {
        is_before(one.virtual_time, other.virtual_time)
    }
}

/// By the moment at which a share was to have its quota anew, when it became dry.
#[derive(Debug)]
pub(super) enum ByQuota {}

impl Order for ByQuota {
    fn precedes(one: &Share, other: &Share) -> bool {
        one.quota_at < other.quota_at
    }
}

/// Where a share is in a heap: below which share, and above which. A share is in one heap at most.
#[derive(Debug)]
pub(super) struct Place {
    above: *mut Share,
    left: *mut Share,
    right: *mut Share,
    rank: u32,
}

impl Place {
    /// That of a share which is in no heap.
    pub(super) const NONE: Self =
        Self { above: null_mut(), left: null_mut(), right: null_mut(), rank: 1 };
}

/// Shares, with the first one at the root.
#[derive(Debug)]
pub(super) struct Heap<O> {
    root: *mut Share,
    order: PhantomData<O>,
}

impl<O: Order> Heap<O> {
    pub(super) const fn new() -> Self {
        Self { root: null_mut(), order: PhantomData }
    }

    /// The first share; null if there is none.
    #[inline]
    pub(super) fn first(&self) -> *mut Share {
        self.root
    }

    /// Whether this share is in a heap: in this one, unless the caller knows of another.
    ///
    /// # Safety
    ///
    /// It is there.
    #[inline]
    pub(super) unsafe fn has(&self, share: *mut Share) -> bool {
        // SAFETY: the caller's promise.
        share == self.root || unsafe { !(*share).place.above.is_null() }
    }

    /// Adds a share.
    ///
    /// # Safety
    ///
    /// It is in no heap, and stays until it is removed. Whenever it comes to be elsewhere in the order,
    /// [`Heap::changed`] is called, before anything else is done with the heap.
    #[inline]
    pub(super) unsafe fn insert(&mut self, share: *mut Share) {
        // SAFETY: the caller's promise; those that are here are there.
        self.root = unsafe { Self::merge(self.root, share) };
    }

    /// Removes a share.
    ///
    /// # Safety
    ///
    /// It is in here.
    #[inline]
    pub(super) unsafe fn remove(&mut self, share: *mut Share) {
        // SAFETY: it is there, as all that it is linked with.
        unsafe {
            let Place { above, left, right, .. } = (*share).place;
            (*share).place = Place::NONE;
            let below = Self::merge(left, right);
            if !below.is_null() {
                (*below).place.above = above;
            }
            if above.is_null() {
                self.root = below;
            } else {
                Self::replace(above, share, below);
            }
        }
    }

    /// A share that is in here has come to be elsewhere in the order.
    ///
    /// # Safety
    ///
    /// It is in here.
    #[inline]
    pub(super) unsafe fn changed(&mut self, share: *mut Share) {
        // SAFETY: the caller's promise. What has none below it on the left has none on the right, either.
        unsafe {
            if share != self.root || !(*share).place.left.is_null() {
                self.place_anew(share);
            }
        }
    }

    /// # Safety
    ///
    /// As [`Heap::changed`].
    #[inline(never)]
    unsafe fn place_anew(&mut self, share: *mut Share) {
        // SAFETY: the caller's promise.
        unsafe {
            self.remove(share);
            self.insert(share);
        }
    }

    /// Merges two heaps, of which each may be empty. Returns the root, above which nothing is.
    ///
    /// # Safety
    ///
    /// Their shares are there. Above their roots is nothing, or what the caller has removed.
    unsafe fn merge(one: *mut Share, other: *mut Share) -> *mut Share {
        if one.is_null() || other.is_null() {
            return if one.is_null() { other } else { one };
        }
        // SAFETY: the caller's promise; what is below each is a heap.
        unsafe {
            let (root, other) =
                if O::precedes(&*other, &*one) { (other, one) } else { (one, other) };
            let below = Self::merge((*root).place.right, other);
            (*below).place.above = root;
            (*root).place.right = below;
            (*root).place.above = null_mut();
            Self::lean(root);
            root
        }
    }

    /// Puts `below` in the place of `share`, which was below `above`.
    ///
    /// # Safety
    ///
    /// The first two are there, and so is the third, unless it is null.
    unsafe fn replace(above: *mut Share, share: *mut Share, below: *mut Share) {
        // SAFETY: the caller's promise; all above it are there.
        unsafe {
            let place = &mut (*above).place;
            if place.left == share {
                place.left = below;
            } else {
                place.right = below;
            }
            let mut at = above;
            // Up to where nothing changes by it.
            while !at.is_null() && Self::lean(at) {
                at = (*at).place.above;
            }
        }
    }

    /// Has the node of the higher rank below `at` be on the left. Returns whether the rank of `at` has changed.
    ///
    /// # Safety
    ///
    /// It is there, and so are those below it.
    unsafe fn lean(at: *mut Share) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let place = &mut (*at).place;
            if Self::rank(place.left) < Self::rank(place.right) {
                core::mem::swap(&mut place.left, &mut place.right);
            }
            let rank = Self::rank(place.right) + 1;
            core::mem::replace(&mut place.rank, rank) != rank
        }
    }

    /// # Safety
    ///
    /// It is there, unless it is null.
    unsafe fn rank(share: *mut Share) -> u32 {
        // SAFETY: the caller's promise.
        if share.is_null() { 0 } else { unsafe { (*share).place.rank } }
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const SHARES: usize = 64;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(usize, i32),
        Remove(usize),
        Change(usize, i32),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        let share = 0..SHARES;
        let time = -50..50_i32;
        prop_oneof![
            3 => (share.clone(), time.clone()).prop_map(|(share, time)| Step::Insert(share, time)),
            1 => share.clone().prop_map(Step::Remove),
            2 => (share, time).prop_map(|(share, time)| Step::Change(share, time)),
            1 => Just(Step::Take),
        ]
    }

    /// Checks the heap below `share`: returns how many shares it has, and the ways to the right.
    fn check(share: *mut Share, above: *mut Share) -> usize {
        if share.is_null() {
            return 0;
        }
        // SAFETY: the test has all of them.
        let its = unsafe { &*share };
        assert_eq!(its.place.above, above);
        // SAFETY: as above.
        let is_first = above.is_null() || !unsafe { ByVirtualTime::precedes(its, &*above) };
        assert!(is_first, "a share comes before the one above it");
        let below = check(its.place.left, share) + check(its.place.right, share);
        // SAFETY: as above.
        let [left, right] =
            [its.place.left, its.place.right].map(|at| unsafe { Heap::<ByVirtualTime>::rank(at) });
        assert!(left >= right && its.place.rank == right + 1);
        assert!(1 << its.place.rank <= below + 2, "a way to the right is long");
        below + 1
    }

    proptest! {
        /// Times go round.
        #[test]
        fn the_first_is_taken_whatever_was_inserted_removed_and_changed(
            base in prop_oneof![Just(0_u64), any::<u64>()],
            steps in prop::collection::vec(step(), 0..300),
        ) {
            let mut shares: Vec<_> =
                (0..SHARES).map(|_| Box::into_raw(Box::new(Share::new(100, None, 1_000_000)))).collect();
            let mut heap = Heap::<ByVirtualTime>::new();
            let mut present: Vec<Option<i32>> = std::vec![None; SHARES];
            for step in steps {
                let time = |at: i32| base.wrapping_add_signed(at.into());
                // SAFETY: the shares are there to the end of the test; each is inserted and removed as the heap asks.
                unsafe {
                    match step {
                        Step::Insert(share, at) if present[share].is_none() => {
                            (*shares[share]).virtual_time = time(at);
                            heap.insert(shares[share]);
                            present[share] = Some(at);
                        }
                        Step::Remove(share) if present[share].is_some() => {
                            heap.remove(shares[share]);
                            present[share] = None;
                        }
                        Step::Change(share, at) if present[share].is_some() => {
                            (*shares[share]).virtual_time = time(at);
                            heap.changed(shares[share]);
                            present[share] = Some(at);
                        }
                        Step::Take if !heap.first().is_null() => {
                            let first = heap.first();
                            let share = shares.iter().position(|&share| share == first).unwrap();
                            prop_assert_eq!(present[share], present.iter().flatten().min().copied());
                            heap.remove(first);
                            present[share] = None;
                        }
                        _ => {}
                    }
                    prop_assert_eq!(check(heap.first(), null_mut()), present.iter().flatten().count());
                    for (share, at) in shares.iter().zip(&present) {
                        prop_assert_eq!(heap.has(*share), at.is_some());
                    }
                }
            }
            for share in shares.drain(..) {
                // SAFETY: it was made of a box.
                drop(unsafe { Box::from_raw(share) });
            }
        }
    }
}
