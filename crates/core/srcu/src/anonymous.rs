//! Readers without a record: pairs of counters that all of them share.
//!
//! A section counts in the counter that `index` names when it begins. Counts cannot tell an old section from a new one.
//! So a grace period that finds the current counter in use has the index flipped: from then on new sections count in
//! the other, and the old counter drains. While one counter drains there is no flip, and grace periods that want one
//! meanwhile share the next. A section that read `index` before a flip and counts after it is found by the next
//! sampling. (Its fence came later than the flip's grace period, which it need not hold up.) The counter that it used
//! is drained before the index is flipped to it again.
//!
//! Each counter is several, on a cache line each: its *stripes*. A section counts up and down in one of them. It picks
//! the stripe by where its stack is, so threads mostly keep to lines of their own. A counter is in use if one of its
//! stripes is. What is said above of one section and its counter holds for its stripe.

pub(crate) mod guard;

use core::ptr::NonNull;

use mayfly_platform::sync::{AtomicBool, AtomicUsize, CacheLine, Ordering, compiler_fence, fence};
use mayfly_platform::write_fields;

use crate::contexts::Contexts;
use crate::world::World;

/// Stripes a counter has. (Where a checker replays an execution, addresses do not.)
const STRIPES: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 1 } else { 8 };

type Stripe = CacheLine<[AtomicUsize; 2]>;
type Stripes = [Stripe; STRIPES];

pub(crate) struct Anonymous {
    /// Which counter a new section uses: 0 or 1. Written under the gate.
    index: AtomicUsize,
    stripes: Stripes,
    /// A thread sleeps until a counter is zero.
    awaited: AtomicBool,
    /// The contexts that have a section that counts in either, and keep to their threads.
    contexts: [Contexts; 2],
}

/// Which grace periods wait for which counter; under the gate.
#[derive(Default)]
pub(crate) struct Draining {
    /// The first grace period that waits for the counter that is not in use.
    old: Option<u64>,
    /// The first grace period that waits for the counter in use.
    current: Option<u64>,
}

impl Anonymous {
    /// Puts counters that no section uses yet at `place`.
    ///
    /// # Safety
    ///
    /// `place` is valid for writes of them, aligned for them, and no other party's.
    pub(crate) unsafe fn write_new(place: NonNull<Self>) {
        let write_stripes = |stripes: NonNull<Stripes>| {
            for number in 0..STRIPES {
                let stripe = CacheLine([AtomicUsize::new(0), AtomicUsize::new(0)]);
                // SAFETY: as the caller promises; there are so many.
                unsafe { stripes.cast::<Stripe>().add(number).write(stripe) };
            }
        };
        // SAFETY: as the caller promises.
        unsafe {
            write_fields!(place => Self {
                index: AtomicUsize::new(0),
                stripes => write_stripes,
                awaited: AtomicBool::new(false),
                contexts: [Contexts::new(), Contexts::new()],
            });
        }
    }

    #[inline]
    fn enter(&self) -> Counted {
        let stripe = here();
        let index = self.index.load(Ordering::Relaxed);
        let counter = &self.stripes[stripe][index];
        if counter.fetch_add(1, Ordering::Relaxed) > usize::MAX / 2 {
            counter.fetch_sub(1, Ordering::Relaxed);
            too_many();
        }
        // [light], see the protocol; a full fence always.
        fence_behind_update();
        Counted { stripe, index }
    }

    /// Returns whether a thread sleeps until this.
    #[inline]
    fn leave(&self, counted: &Counted) -> bool {
        // Release, pairing with the acquire in `is_in_use`.
        let stripe = &self.stripes[counted.stripe];
        let last = stripe[counted.index].fetch_sub(1, Ordering::Release) == 1;
        // [light], see the protocol.
        fence_behind_update();
        last && self.awaited.load(Ordering::Relaxed) && self.awaited.swap(false, Ordering::Relaxed)
    }

    /// Whether no section is open. The caller executed a full fence before.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_in_use(0) && !self.is_in_use(1)
    }

    fn is_in_use(&self, index: usize) -> bool {
        self.stripes.iter().any(|stripe| stripe[index].load(Ordering::Acquire) != 0)
    }

    /// Asks the thread that leaves a counter that a grace period waits for at zero to say so. Returns whether no thread
    /// had asked before.
    pub(crate) fn mark(&self, draining: &Draining) -> bool {
        let marks = (draining.old.is_some() || draining.current.is_some())
            && !self.awaited.load(Ordering::Relaxed);
        if marks {
            self.awaited.store(true, Ordering::Relaxed);
        }
        marks
    }

    /// Whether a section of what runs here holds up grace period `period`.
    pub(crate) fn is_blocked_here(&self, draining: &Draining, period: u64, world: &World) -> bool {
        let current = self.index.load(Ordering::Relaxed);
        let blocks = |first: Option<u64>| first.is_some_and(|first| first <= period);
        (blocks(draining.current) && self.contexts[current].has(world))
            || (blocks(draining.old) && self.contexts[1 - current].has(world))
    }

    /// Looks at both counters under the gate, after the barrier of grace period `sampling` if there is one, and returns
    /// the first grace period that has to wait for a section seen here.
    pub(crate) fn scan(&self, draining: &mut Draining, sampling: Option<u64>) -> Option<u64> {
        let index = self.index.load(Ordering::Relaxed);
        if !self.is_in_use(1 - index) {
            draining.old = None;
        } else if let Some(period) = sampling {
            draining.old.get_or_insert(period);
        }
        if !self.is_in_use(index) {
            draining.current = None;
        } else if let Some(period) = sampling {
            draining.current.get_or_insert(period);
        }
        if draining.old.is_none() && draining.current.is_some() && !self.is_in_use(1 - index) {
            self.index.store(1 - index, Ordering::Relaxed);
            draining.old = draining.current.take();
        }
        match (draining.old, draining.current) {
            (Some(old), Some(current)) => Some(old.min(current)),
            (old, current) => old.or(current),
        }
    }
}

/// Where a section counts.
pub(crate) struct Counted {
    stripe: usize,
    index: usize,
}

/// The stripe for the thread that runs here. Stacks lie apart, and one has the same stripe for most of its depth.
#[inline]
fn here() -> usize {
    const STACK_SHIFT: u32 = 14;
    if STRIPES == 1 {
        return 0;
    }
    let on_stack = 0_u8;
    let stack = core::ptr::from_ref(&on_stack).addr() >> STACK_SHIFT;
    // Fibonacci hashing: the upper bits of the product depend on all bits of the address.
    let hash = (stack as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (u64::BITS - STRIPES.trailing_zeros())) as usize
}

/// A full fence behind an atomic update, which on x86 is one already.
#[inline]
fn fence_behind_update() {
    if cfg!(all(target_arch = "x86_64", not(any(miri, mayfly_loom, mayfly_shuttle)))) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

#[cold]
#[inline(never)]
fn too_many() -> ! {
    panic!("half of all numbers of guards are alive");
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const MOST: usize = usize::MAX / 2;

    fn new() -> Anonymous {
        let mut place = MaybeUninit::uninit();
        // SAFETY: the place is there, and all of it is written.
        unsafe {
            Anonymous::write_new(NonNull::from(&mut place).cast());
            place.assume_init()
        }
    }

    /// As leaks would make it, on whatever stripe a thread has.
    fn with_guards(alive: usize) -> Anonymous {
        let anonymous = new();
        for stripe in &anonymous.stripes {
            stripe[0].store(alive, Ordering::Relaxed);
        }
        anonymous
    }

    #[test]
    fn guards_are_counted_up_to_half_of_all_numbers() {
        let anonymous = with_guards(MOST);
        let last = anonymous.enter();
        assert_eq!(anonymous.stripes[last.stripe][0].load(Ordering::Relaxed), MOST + 1);
        assert!(!anonymous.leave(&last));
        assert_eq!(anonymous.stripes[last.stripe][0].load(Ordering::Relaxed), MOST);
    }

    #[test]
    fn a_guard_past_that_is_refused_and_not_counted_so_that_they_never_come_round_to_nobody() {
        let anonymous = with_guards(MOST + 1);
        for _ in 0..3 {
            assert!(catch_unwind(AssertUnwindSafe(|| anonymous.enter().index)).is_err());
        }
        let counts = anonymous.stripes.iter().map(|stripe| stripe[0].load(Ordering::Relaxed));
        assert!(counts.into_iter().all(|count| count == MOST + 1));
    }
}
