//! The beginning of a thread, and its end.

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use mayfly_hypervisor::account::ShareId;
use mayfly_vm::platform::memory::OutOfMemory;

use super::arch::{STACK_ORDER, prepare};
use super::course::{current, free_over, switch};
use super::interrupts::look;
use super::local::local;
use super::scheduler::SCHEDULER;
use super::thread::Thread;
use crate::bare::processor::{frames, timer};

/// Starts a thread of the hypervisor's own that does `work`.
///
/// # Errors
///
/// [`OutOfMemory`], when there is no memory for its stack.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), OutOfMemory> {
    spawn_for(ShareId::SYSTEM, work)
}

/// Starts a thread that does `work`. Its stack is of a share of the machine.
///
/// # Errors
///
/// As [`spawn`].
pub(crate) fn spawn_for(
    share: ShareId,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), OutOfMemory> {
    let stack = frames::allocate(share, STACK_ORDER, look).ok_or(OutOfMemory)?;
    let mut thread = Box::new(Thread::new(Some(stack), Some(Box::new(work))));
    thread.stack = prepare(stack, begin);
    let mut scheduler = SCHEDULER.lock();
    thread.number = scheduler.number();
    scheduler.make_ready(Box::into_raw(thread), timer::ticks());
    Ok(())
}

/// What a thread does first: on its own stack, with the lock held.
extern "C" fn begin() -> ! {
    // SAFETY: `switch` has forgotten the guard.
    unsafe { SCHEDULER.unlock() };
    free_over();
    // SAFETY: this thread's own.
    let work = unsafe { (*current()).work.take() };
    if let Some(work) = work {
        work();
    }
    let here = local();
    let mut scheduler = SCHEDULER.lock();
    let now = timer::ticks();
    here.over.store(here.current.load(Ordering::Relaxed), Ordering::Relaxed);
    let to = scheduler.next(here, now);
    switch(here, scheduler, to, now);
    unreachable!("a thread that is over does not go on")
}
