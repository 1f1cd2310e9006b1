//! Guests' tables under loom: a frame that was unmapped is given to another when no CPU uses it any more.

#![cfg(mayfly_loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use mayfly_platform::tlb::Vmid;
use mayfly_shootdown::guests::{Generation, Of, Place};

const VMID: Vmid = Vmid(7);

/// A machine of a table of one entry, which maps a frame or not, and two CPUs that may enter a guest.
struct Machine {
    generation: Generation,
    places: [Place; 2],
    /// The entry of the table.
    is_mapped: AtomicBool,
    /// The frame, which guests read, and its next owner writes.
    frame: UnsafeCell<u32>,
    /// Whether the interrupt of the CPU has come.
    interrupted: [AtomicBool; 2],
}

// SAFETY: of the frame alone, which is what is tested: loom finds two accesses that are not in order.
unsafe impl Sync for Machine {}

impl Machine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            generation: Generation::new(),
            places: [Place::new(), Place::new()],
            is_mapped: AtomicBool::new(true),
            frame: UnsafeCell::new(0),
            interrupted: [AtomicBool::new(false), AtomicBool::new(false)],
        })
    }

    /// A CPU whose TLB has the translation enters once, uses it if it has not been told to flush, and comes out: at once, or by
    /// the interrupt.
    fn guest(&self, cpu: usize, tlb: &mut bool, waits: bool) {
        if self.places[cpu].enter(&self.generation, VMID) {
            // A flush; the walk behind it.
            *tlb = self.is_mapped.load(Ordering::Relaxed);
        }
        if *tlb {
            // SAFETY: loom says if it is not so.
            self.frame.with(|frame| unsafe { *frame });
        }
        while waits && *tlb && !self.interrupted[cpu].load(Ordering::Relaxed) {
            thread::yield_now();
        }
        self.places[cpu].leave();
    }

    /// Unmaps the frame, and has another owner write to it.
    fn unmap(&self) {
        self.is_mapped.store(false, Ordering::Relaxed);
        let interrupt = |cpu: usize| self.interrupted[cpu].store(true, Ordering::Relaxed);
        self.generation.invalidate(
            self.places.iter(),
            Of::Vmid(VMID),
            interrupt,
            thread::yield_now,
        );
        // SAFETY: as above.
        self.frame.with_mut(|frame| unsafe { *frame += 1 });
    }
}

#[test]
fn a_cpu_that_enters_and_leaves_never_uses_a_frame_that_has_another_owner() {
    loom::model(|| {
        let machine = Machine::new();
        let cpu = machine.clone();
        let cpu = thread::spawn(move || {
            let mut tlb = true;
            cpu.guest(0, &mut tlb, false);
            cpu.guest(0, &mut tlb, false);
        });
        machine.unmap();
        cpu.join().unwrap();
    });
}

#[test]
fn a_cpu_that_stays_in_its_guest_is_brought_out() {
    loom::model(|| {
        let machine = Machine::new();
        let cpu = machine.clone();
        let cpu = thread::spawn(move || cpu.guest(0, &mut true, true));
        machine.unmap();
        cpu.join().unwrap();
    });
}

#[test]
fn two_that_invalidate_at_once_both_go_on_and_the_frame_is_used_by_none() {
    loom::model(|| {
        let machine = Machine::new();
        let other = machine.clone();
        // This one invalidates for another reason, and then enters a guest that has the frame in its TLB.
        let other = thread::spawn(move || {
            let places = other.places.iter();
            other.generation.invalidate(places, Of::All, |_| (), thread::yield_now);
            other.guest(1, &mut true, false);
        });
        machine.unmap();
        other.join().unwrap();
    });
}
