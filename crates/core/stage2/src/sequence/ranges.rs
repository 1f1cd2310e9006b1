//! The ranges that invalidations under way have announced: a place for each, as long as there are places.
//!
//! They are written under the sequence's lock, and read without it, start and end one after the other. So a reader may
//! find the start of one range with the end of another. But a value that is no longer in its place was taken back after
//! its invalidation had ended, and a reader that finds that, or a later value, has acquired the end. The
//! [sequence](super) says why that is enough.
//!
//! Ranges beyond the places share the last one. It grows by each of them, and is taken back with the last of them. A
//! range that is part of it lies in it for as long as the range lasts.

use core::ops::Range;

use mayfly_platform::address::Gfn;
use mayfly_platform::sync::{AtomicU64, Ordering};

/// Ranges that have a place of their own: more than there usually are CPUs that change the host's memory at once.
pub(super) const PLACES: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 1 } else { 16 };

/// The place that ranges beyond share.
const SHARED: usize = PLACES;

pub(super) struct Ranges {
    /// Start and end; the end is 0 where there is none.
    places: [[AtomicU64; 2]; PLACES + 1],
    /// The places that are taken, but for the shared one; and how many ranges that has. Under the lock.
    taken: AtomicU64,
    sharers: AtomicU64,
}

/// The places that one invalidation has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    own: u64,
    shared: u64,
}

impl Taken {
    pub(super) const NONE: Self = Self { own: 0, shared: 0 };
}

impl Ranges {
    pub(super) fn new() -> Self {
        let none = |_| [AtomicU64::new(0), AtomicU64::new(0)];
        Self {
            places: core::array::from_fn(none),
            taken: AtomicU64::new(0),
            sharers: AtomicU64::new(0),
        }
    }

    /// How many ranges have something of `gfns`; the shared place counts as two, for it may stand for several.
    pub(super) fn count(&self, gfns: &Range<Gfn>) -> usize {
        let has_some = |[start, end]: &[AtomicU64; 2]| {
            start.load(Ordering::Acquire) < gfns.end.get()
                && end.load(Ordering::Acquire) > gfns.start.get()
        };
        let own = self.places[..PLACES].iter().filter(|place| has_some(place)).count();
        if has_some(&self.places[SHARED]) { own + 2 } else { own }
    }

    /// Whether all of `gfns` are in places of `taken`, which have not been given back. The shared one stands for all
    /// that its sharers have announced.
    ///
    /// Relaxed: the caller has what was stored when they were taken, and since then the shared one only grows.
    pub(super) fn have(&self, taken: &Taken, gfns: &Range<Gfn>) -> bool {
        let is_taken = |place| match place {
            SHARED => taken.shared > 0,
            _ => taken.own & 1 << place != 0,
        };
        let end_of = |place: &[AtomicU64; 2], from| {
            let [start, end] = place.each_ref().map(|bound| bound.load(Ordering::Relaxed));
            (start..end).contains(&from).then_some(end)
        };
        let mut from = gfns.start.get();
        while from < gfns.end.get() {
            let taken = (0..=PLACES).filter(|&place| is_taken(place));
            match taken.filter_map(|place| end_of(&self.places[place], from)).max() {
                Some(end) => from = end,
                None => return false,
            }
        }
        true
    }

    /// Puts `gfns` in a place, under the lock.
    pub(super) fn take(&self, gfns: &Range<Gfn>, by: &mut Taken) {
        let taken = self.taken.load(Ordering::Relaxed);
        let place = taken.trailing_ones() as usize;
        let (mut first, mut last) = (gfns.start.get(), gfns.end.get());
        if place < PLACES {
            self.taken.store(taken | 1 << place, Ordering::Relaxed);
            by.own |= 1 << place;
        } else {
            let sharers = self.sharers.load(Ordering::Relaxed);
            let [start, end] = &self.places[SHARED];
            if sharers > 0 {
                first = first.min(start.load(Ordering::Relaxed));
                last = last.max(end.load(Ordering::Relaxed));
            }
            self.sharers.store(sharers + 1, Ordering::Relaxed);
            by.shared += 1;
        }
        self.set(place, first, last);
    }

    /// Empties the places of an invalidation whose words have its number, under the lock.
    pub(super) fn give_back(&self, Taken { mut own, shared }: Taken) {
        self.taken.store(self.taken.load(Ordering::Relaxed) & !own, Ordering::Relaxed);
        while own != 0 {
            self.set(own.trailing_zeros() as usize, 0, 0);
            own &= own - 1;
        }
        let sharers = self.sharers.load(Ordering::Relaxed) - shared;
        self.sharers.store(sharers, Ordering::Relaxed);
        if shared > 0 && sharers == 0 {
            self.set(SHARED, 0, 0);
        }
    }

    fn set(&self, place: usize, first: u64, last: u64) {
        let [start, end] = &self.places[place];
        start.store(first, Ordering::Release);
        end.store(last, Ordering::Release);
    }
}
