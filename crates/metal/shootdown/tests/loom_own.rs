//! The program's own tables under loom: a frame of a stack is given to another when no CPU has its old address any more, and
//! two that invalidate at once both go on.

#![cfg(mayfly_loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use mayfly_shootdown::own::{Generation, Seen};

struct Machine {
    generation: Generation,
    seen: [Seen; 2],
    is_mapped: AtomicBool,
    frame: UnsafeCell<u32>,
}

// SAFETY: of the frame alone, which is what is tested: loom finds two accesses that are not in order.
unsafe impl Sync for Machine {}

impl Machine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            generation: Generation::new(),
            seen: [Seen::new(), Seen::new()],
            is_mapped: AtomicBool::new(true),
            frame: UnsafeCell::new(0),
        })
    }

    fn look(&self, cpu: usize) {
        self.seen[cpu].look(&self.generation, || ());
    }

    fn invalidate(&self, cpu: usize) {
        let meanwhile = || {
            self.look(cpu);
            thread::yield_now();
        };
        self.generation.invalidate(self.seen.iter(), || (), meanwhile);
    }
}

#[test]
fn a_frame_is_used_by_its_next_owner_alone() {
    loom::model(|| {
        let machine = Machine::new();
        let other = machine.clone();
        let other = thread::spawn(move || {
            let mut tlb = true;
            for _ in 0..2 {
                if tlb {
                    // SAFETY: loom says if it is not so.
                    other.frame.with(|frame| unsafe { *frame });
                }
                // It walks again behind the flush.
                other.seen[1]
                    .look(&other.generation, || tlb = other.is_mapped.load(Ordering::Relaxed));
            }
            // It looks until it was asked.
            while tlb {
                other.seen[1]
                    .look(&other.generation, || tlb = other.is_mapped.load(Ordering::Relaxed));
                thread::yield_now();
            }
        });
        machine.is_mapped.store(false, Ordering::Relaxed);
        machine.invalidate(0);
        // SAFETY: as above.
        machine.frame.with_mut(|frame| unsafe { *frame += 1 });
        other.join().unwrap();
    });
}

#[test]
fn two_that_invalidate_at_once_both_go_on() {
    loom::model(|| {
        let machine = Machine::new();
        let other = machine.clone();
        let done = Arc::new(AtomicBool::new(false));
        let is_done = done.clone();
        let other = thread::spawn(move || {
            other.invalidate(1);
            // It goes on looking, as a CPU does.
            while !is_done.load(Ordering::Acquire) {
                other.look(1);
                thread::yield_now();
            }
        });
        machine.invalidate(0);
        done.store(true, Ordering::Release);
        // The other one may still wait for this.
        machine.look(0);
        other.join().unwrap();
    });
}

/// A CPU that halts until it is interrupted looks when it has taken the interrupt. If it looked before it takes it, and not behind
/// that, it would be waited for without end.
#[test]
fn a_cpu_that_halts_is_waited_for_until_it_has_taken_its_interrupt() {
    loom::model(|| {
        let machine = Machine::new();
        let pending = Arc::new(AtomicBool::new(false));
        let (other, its) = (machine.clone(), pending.clone());
        let other = thread::spawn(move || {
            // It looks for interrupts for another reason, and then halts.
            let is_taken = its.load(Ordering::Acquire);
            other.look(1);
            if !is_taken {
                while !its.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                other.look(1);
            }
        });
        let meanwhile = || {
            machine.look(0);
            thread::yield_now();
        };
        let interrupt = || pending.store(true, Ordering::Release);
        machine.generation.invalidate(machine.seen.iter(), interrupt, meanwhile);
        other.join().unwrap();
    });
}
