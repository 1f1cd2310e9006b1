//! Tables of guests.
//!
//! A CPU uses what it keeps of a guest's tables while it is in that guest, and at no other time. So whoever invalidates waits
//! for the CPUs that are in that guest alone. Each other CPU flushes before it enters a guest again.
//!
//! # The protocol
//!
//! The machine has a *generation*, which each invalidation raises by one. Each CPU has a word. It is 0 while the CPU is in no
//! guest; otherwise it says under which VMID the CPU is in one, and of which generation the CPU has last flushed.
//!
//! A CPU that is about to enter stores in its word the generation that it has last flushed for: **\[in\]**. It passes a full
//! fence, and reads the generation of the machine: **\[see\]**. If that is another, it stores that one, and flushes as it
//! enters. When it has come out, it stores 0: **\[out\]**.
//!
//! Whoever invalidates has changed the tables. Then it raises the generation, **\[raise\]**, passes a full fence, and reads the
//! word of each CPU: **\[look\]**. It waits for those that are in a guest under that VMID, of an earlier generation; it
//! interrupts each of them, once, which brings it out.
//!
//! **Why no CPU uses what was invalidated.** The two full fences are in some order. If that of the CPU comes first, \[look\]
//! reads what \[in\] has stored, or something later: the CPU is waited for, until it has come out, or is in with a later
//! generation. If it comes second, \[see\] reads the raised generation: then the CPU flushes before it uses anything. \[see\]
//! is an acquire, which pairs with the release of \[raise\]: what the CPU walks behind the flush is what was changed.
//!
//! **Why what the CPU did is over** when whoever invalidates goes on: \[out\], and what is stored on the way in, is a release,
//! and pairs with the acquire of \[look\].
//!
//! **Why the wait ends.** A CPU in a guest comes out by an interrupt at once, whatever the guest does, and stores 0 before
//! anything else. It waits for nothing in between. A CPU that waits here is in no guest, so two that wait do not wait for each
//! other; nor does it matter which locks they have.
//!
//! A CPU that comes out and goes in again before \[look\] has read the 0 has read the raised generation then: \[look\] finds
//! that one.

use mayfly_platform::sync::{AtomicU64, CacheLine, Ordering, fence};
use mayfly_platform::tlb::Vmid;

const VMID_BITS: u32 = 16;

/// The generation of a machine's invalidations.
#[derive(Debug)]
pub struct Generation(CacheLine<AtomicU64>);

/// The word of a CPU, and for which generation it has flushed last.
#[derive(Debug)]
pub struct Place(CacheLine<(AtomicU64, AtomicU64)>);

/// Whom an invalidation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Those that are in a guest under that VMID.
    Vmid(Vmid),
    /// Those that are in any guest.
    All,
}

impl Generation {
    /// The first. No CPU has flushed for it yet: whatever ran before may have left something in TLBs.
    #[cfg(not(any(mayfly_loom, mayfly_shuttle)))]
    pub const fn new() -> Self {
        Self(CacheLine(AtomicU64::new(1)))
    }

    /// The same, for a model.
    #[cfg(any(mayfly_loom, mayfly_shuttle))]
    pub fn new() -> Self {
        Self(CacheLine(AtomicU64::new(1)))
    }

    /// Has every CPU forget what it keeps of tables that were changed before this. Returns when no CPU uses any of it.
    /// `places` are those of all CPUs, by number. `interrupt` brings one out of its guest. `meanwhile` is called again and again
    /// until all is done. The caller is in no guest.
    pub fn invalidate<'a>(
        &self,
        places: impl Iterator<Item = &'a Place>,
        of: Of,
        interrupt: impl Fn(usize),
        meanwhile: impl Fn(),
    ) {
        // [raise]: an acquire, too, so that what was read of others' changes is among what is walked afterwards.
        let raised = self.0.fetch_add(1, Ordering::AcqRel) + 1;
        fence(Ordering::SeqCst);
        for (number, Place(CacheLine((word, _)))) in places.enumerate() {
            let mut is_told = false;
            // [look]
            while is_in(word.load(Ordering::Acquire), of, raised) {
                if !core::mem::replace(&mut is_told, true) {
                    interrupt(number);
                }
                meanwhile();
            }
        }
    }
}

impl Default for Generation {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether that word is one of a CPU that may use what is outdated since `raised`.
const fn is_in(word: u64, of: Of, raised: u64) -> bool {
    if word == 0 || word >> VMID_BITS >= raised {
        return false;
    }
    match of {
        Of::Vmid(Vmid(vmid)) => word as u16 == vmid,
        Of::All => true,
    }
}

impl Place {
    /// That of a CPU which is in no guest, and has never flushed.
    #[cfg(not(any(mayfly_loom, mayfly_shuttle)))]
    pub const fn new() -> Self {
        Self(CacheLine((AtomicU64::new(0), AtomicU64::new(0))))
    }

    /// The same, for a model.
    #[cfg(any(mayfly_loom, mayfly_shuttle))]
    pub fn new() -> Self {
        Self(CacheLine((AtomicU64::new(0), AtomicU64::new(0))))
    }

    /// For the CPU itself: it is about to enter a guest under that VMID, which is not 0. Returns whether it is to flush as it
    /// enters: all that it keeps of any guest.
    #[inline]
    pub fn enter(&self, machine: &Generation, vmid: Vmid) -> bool {
        let Self(CacheLine((word, flushed))) = self;
        let is_in = |generation: u64| generation << VMID_BITS | u64::from(vmid.0);
        let last = flushed.load(Ordering::Relaxed);
        // [in]
        word.store(is_in(last), Ordering::Release);
        fence(Ordering::SeqCst);
        // [see]
        let now = machine.0.load(Ordering::Acquire);
        if now == last {
            return false;
        }
        flushed.store(now, Ordering::Relaxed);
        word.store(is_in(now), Ordering::Release);
        true
    }

    /// For the CPU itself: it has come out, and is not sure to have flushed as it entered. It does when it enters again.
    pub fn has_not_flushed(&self) {
        // No generation is 0.
        self.0.0.1.store(0, Ordering::Relaxed);
    }

    /// For the CPU itself: it has come out.
    #[inline]
    pub fn leave(&self) {
        // [out]
        self.0.0.0.store(0, Ordering::Release);
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    extern crate std;

    use std::cell::RefCell;
    use std::vec::Vec;

    use super::*;

    const ONE: Vmid = Vmid(1);
    const TWO: Vmid = Vmid(u16::MAX);

    #[test]
    fn each_cpu_flushes_once_for_each_generation() {
        let (machine, places) = (Generation::new(), [const { Place::new() }; 2]);
        let nobody = |_| panic!("no CPU is in a guest");
        let enters = |place: &Place| {
            let flushes = place.enter(&machine, ONE);
            place.leave();
            flushes
        };
        assert!(places.iter().all(enters), "whatever ran before");
        assert!(!places.iter().any(enters));
        machine.invalidate(places.iter(), Of::Vmid(TWO), nobody, || ());
        machine.invalidate(places.iter(), Of::All, nobody, || ());
        assert!(places.iter().all(enters));
        assert!(!places.iter().any(enters));
    }

    #[test]
    fn a_cpu_whose_entry_has_failed_flushes_at_the_next() {
        let (machine, place) = (Generation::new(), Place::new());
        for _ in 0..2 {
            assert!(place.enter(&machine, ONE));
            place.leave();
            place.has_not_flushed();
        }
        assert!(place.enter(&machine, TWO));
        place.leave();
        assert!(!place.enter(&machine, ONE));
    }

    #[test]
    fn those_in_that_guest_are_interrupted_once_and_waited_for_and_no_others() {
        let (machine, places) = (Generation::new(), [const { Place::new() }; 4]);
        places[0].enter(&machine, ONE);
        places[2].enter(&machine, TWO);
        places[3].enter(&machine, ONE);
        let (told, turns) = (RefCell::new(Vec::new()), RefCell::new(0));
        let meanwhile = || {
            *turns.borrow_mut() += 1;
            // After a while each of them comes out; and one goes in again.
            match *turns.borrow() {
                3 => {
                    places[0].leave();
                    assert!(places[0].enter(&machine, ONE));
                }
                5 => places[3].leave(),
                _ => {}
            }
        };
        let interrupt = |number| told.borrow_mut().push(number);
        machine.invalidate(places.iter(), Of::Vmid(ONE), interrupt, meanwhile);
        assert_eq!((told.take(), turns.take()), (Vec::from([0, 3]), 5));
        let meanwhile = || places[2].leave();
        places[0].leave();
        machine.invalidate(places.iter(), Of::All, interrupt, meanwhile);
        assert_eq!(told.take(), [2]);
    }
}
