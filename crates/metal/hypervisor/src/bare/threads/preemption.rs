//! Where a thread may lose its processor, and what a processor does that has none.

use super::course::{arm, give_way, switch};
use super::interrupts;
use super::local::local;
use super::overflow;
use super::scheduler::SCHEDULER;
use crate::bare::processor::spin::wait_for_interrupt;
use crate::bare::processor::{cpu, masked, timer};

/// A point of long work: interrupts that have come meanwhile are served, and others have the processor if this
/// thread is to give it up.
pub(crate) fn preemption_point() {
    let here = local();
    // The next thread on this processor serves the interrupts, or is interrupted by them.
    if here.is_over_time() {
        return give_way(here);
    }
    interrupts::take();
    if here.is_over_time() {
        give_way(here);
    }
}

/// What an idle processor does, for good: runs threads that can run, and waits for interrupts.
pub(crate) fn idle() -> ! {
    loop {
        overflow::look();
        interrupts::take();
        let mut scheduler = SCHEDULER.lock();
        let now = timer::ticks();
        scheduler.wake_due(local(), now);
        if let Some(to) = scheduler.take(now) {
            switch(local(), scheduler, to);
        } else {
            scheduler.idle |= 1 << cpu::number();
            arm(&scheduler, local());
            drop(scheduler);
            masked::end();
            wait_for_interrupt();
            masked::begin();
            SCHEDULER.lock().idle &= !(1 << cpu::number());
        }
    }
}
