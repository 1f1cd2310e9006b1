//! The beginning of a thread, and its end.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use mayfly_hypervisor::account::ShareId;
use mayfly_vm::platform::memory::OutOfMemory;

use super::account::Account;
use super::arch::prepare;
use super::course::{current, free_over, switch_to_next};
use super::local::local;
use super::scheduler::SCHEDULER;
use super::stack::{Depth, Stack};
use super::thread::{Name, Thread};
use crate::bare::processor::timer;

/// What the time of this thread is charged to.
fn own_account() -> Arc<Account> {
    // SAFETY: this thread's own.
    unsafe { Arc::clone(&(*current()).account) }
}

/// Starts a thread of the hypervisor's own that does `work`, and whose time is charged as that of the caller is.
///
/// # Errors
///
/// [`OutOfMemory`], when there is no memory for its stack.
pub(crate) fn spawn(name: Name, work: impl FnOnce() + Send + 'static) -> Result<(), OutOfMemory> {
    spawn_for(name, &own_account(), work)
}

/// The same, whose time is charged to `account`.
///
/// # Errors
///
/// As [`spawn`].
pub(crate) fn spawn_for(
    name: Name,
    account: &Arc<Account>,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), OutOfMemory> {
    spawn_in(name, (ShareId::SYSTEM, Depth::Own), account, work)
}

/// Starts the thread of a vCPU, whose stack is of a share of the machine's memory, and whose time is charged as that of the
/// caller is.
///
/// # Errors
///
/// As [`spawn`].
pub(crate) fn spawn_vcpu(
    number: u32,
    share: ShareId,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), OutOfMemory> {
    spawn_in(Name::numbered("vCPU", number), (share, Depth::Vcpu), &own_account(), work)
}

/// Starts a thread that does `work`, and whose time is charged to `account`. Its stack is of a share of the machine's memory,
/// and so deep.
///
/// # Errors
///
/// As [`spawn`].
pub(crate) fn spawn_in(
    name: Name,
    (share, depth): (ShareId, Depth),
    account: &Arc<Account>,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), OutOfMemory> {
    let stack = Stack::try_new(share, depth).ok_or(OutOfMemory)?;
    let work = Box::new(work);
    let saved = prepare(&stack, begin);
    let mut thread = Box::new(Thread::new(name, Arc::clone(account), Some(stack), Some(work)));
    thread.saved = saved;
    let mut scheduler = SCHEDULER.lock();
    thread.number = scheduler.number();
    // SAFETY: under the lock.
    unsafe { (*account.share()).add_thread() };
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
    let thread = here.current.load(Ordering::Relaxed);
    here.over.store(thread, Ordering::Relaxed);
    // SAFETY: it runs here.
    unsafe { scheduler.turns.stop(&raw mut (*thread).turn, now) };
    switch_to_next(here, scheduler, now);
    unreachable!("a thread that is over does not go on")
}
