//! Which CPUs a heavy barrier may leave out: those that pass a full barrier after they have said that they are out of
//! their guest, and before their first section. Returning from the guest, an exception, is none.
//!
//! The reader's own barrier is that of an asymmetric domain, nothing, so what keeps it from the old value is that one
//! barrier alone. Where the writer finds the CPU out of its guest, the platform would reach it; those executions are
//! judged by the other models.

#![cfg(mayfly_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use loom::thread;

/// What a writer has published, beside what it has unpublished.
const PRESENT: usize = 1;

struct Cpu {
    in_guest: AtomicBool,
    section: AtomicBool,
    published: AtomicUsize,
    freed: AtomicBool,
}

/// A CPU comes out of its guest and reads, while a writer publishes, finds the CPU in its guest, leaves it out, and
/// frees what nobody is seen to read. `barrier` is what the CPU passes on its way out.
fn leaves_out(barrier: fn()) {
    loom::model(move || {
        let cpu = Arc::new(Cpu {
            in_guest: AtomicBool::new(true),
            section: AtomicBool::new(false),
            published: AtomicUsize::new(0),
            freed: AtomicBool::new(false),
        });
        let writer = {
            let cpu = Arc::clone(&cpu);
            thread::spawn(move || {
                cpu.published.store(PRESENT, Ordering::Release);
                fence(Ordering::SeqCst);
                let is_left_out = cpu.in_guest.load(Ordering::Acquire);
                if is_left_out && !cpu.section.load(Ordering::Acquire) {
                    cpu.freed.store(true, Ordering::SeqCst);
                }
            })
        };
        cpu.in_guest.store(false, Ordering::Release);
        barrier();
        cpu.section.store(true, Ordering::Relaxed);
        let read = cpu.published.load(Ordering::Acquire);
        writer.join().unwrap();
        let freed = cpu.freed.load(Ordering::SeqCst);
        assert!(read == PRESENT || !freed, "reads what was freed");
    });
}

#[test]
fn a_cpu_that_passes_a_full_barrier_on_its_way_out_may_be_left_out() {
    leaves_out(|| fence(Ordering::SeqCst));
}

#[test]
#[should_panic(expected = "reads what was freed")]
fn a_cpu_that_passes_none_may_not() {
    leaves_out(|| ());
}

#[test]
#[should_panic(expected = "reads what was freed")]
fn a_release_and_an_acquire_are_none() {
    leaves_out(|| fence(Ordering::AcqRel));
}
