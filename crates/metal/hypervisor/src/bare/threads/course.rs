//! The thread that runs on this processor, and its switch to the next one.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use mayfly_hypervisor::turns::Turn;

use super::account::Account;
use super::arch::switch_to;
use super::local::{Local, local, of};
use super::scheduler::{SCHEDULER, Scheduler};
use super::thread::{Leave, Name, Thread};
use crate::bare::processor::spin::SpinGuard;
use crate::bare::processor::timer;

/// The thread that runs here; null before [`adopt`].
pub(super) fn current() -> *mut Thread {
    local().current.load(Ordering::Relaxed)
}

/// Makes what runs on this processor the thread that runs when no other can. Once on each processor.
pub(crate) fn adopt() {
    let mut thread =
        Box::new(Thread::new(Name::new("the idle thread"), Account::own(), None, None));
    let mut scheduler = SCHEDULER.lock();
    scheduler.add_processor();
    thread.number = scheduler.number();
    local().begin(Box::into_raw(thread));
}

/// Whether this processor has come so far that it runs threads.
pub(super) fn has_begun() -> bool {
    !current().is_null()
}

/// The number of the thread that runs here; 0 where there is none.
pub(crate) fn number() -> u64 {
    let thread = current();
    if thread.is_null() {
        return 0;
    }
    // SAFETY: it is this thread's, which is there.
    unsafe { (*thread).number }
}

/// The thread that runs here, for messages: what it is, and of which VM.
pub(crate) struct ThisThread;

impl fmt::Display for ThisThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = current();
        if thread.is_null() {
            return f.write_str("a processor that starts");
        }
        // SAFETY: it is this thread's, which is there.
        let (name, account) = unsafe { (&(*thread).name, &(*thread).account) };
        write!(f, "{name}")?;
        account.vm().map_or(Ok(()), |vm| write!(f, " of VM {vm}"))
    }
}

/// Charges `account`, and not this thread's own, for what this thread has had since it was last here, or got its
/// processor. Not for short times: they are charged with the next.
pub(crate) fn has_worked_for(account: &Arc<Account>) {
    const MICROSECONDS: u64 = 20;
    let thread = current();
    if thread.is_null() {
        return;
    }
    // SAFETY: it is this thread's, which is there, and which alone changes what is read here.
    unsafe {
        if Arc::ptr_eq(account, &(*thread).account) {
            return;
        }
        let now = timer::ticks();
        let since = (*thread).billed.max((*thread).turn.began());
        if now - since >= timer::frequency() * MICROSECONDS / 1_000_000 {
            (*thread).billed = now;
            SCHEDULER.lock().turns.bill(&raw mut (*thread).turn, account.share(), now - since);
        }
    }
}

/// This thread works [in the background](Turn::in_background) from now on.
pub(crate) fn work_in_background() {
    let _scheduler = SCHEDULER.lock();
    // SAFETY: this thread's own, under the lock.
    unsafe { (*current()).turn.in_background() };
}

/// Calls `leave` with its argument each time that this thread gives its processor up.
///
/// # Safety
///
/// It may be called so until [`on_leave`] is called with something else, or the thread ends. It neither waits nor calls
/// anything in this folder.
pub(crate) unsafe fn on_leave(leave: Option<Leave>) {
    // SAFETY: this thread's own.
    unsafe { (*current()).leave = leave };
}

/// Does what this thread does when it gives its processor up.
pub(super) fn leave() {
    local().leave();
}

/// Goes on with `to` on this processor, which is `here`: with another thread that was taken. The present thread waits
/// for a processor, is asleep or over, and has done what it does when it gives its processor up ([`leave`]).
#[inline]
pub(super) fn switch(here: &Local, scheduler: SpinGuard<'static, Scheduler>, to: *mut Thread) {
    // SAFETY: it is this processor's now.
    let end = unsafe { (*to).turn.end() };
    here.set_alarm_to(end.min(scheduler.turns.next_event()));
    go_on(here, scheduler, to);
}

/// As [`switch`], with the thread whose turn it is, or with the idle thread.
pub(super) fn switch_to_next(here: &Local, mut scheduler: SpinGuard<'static, Scheduler>, now: u64) {
    match scheduler.take(now) {
        Some(to) => switch(here, scheduler, to),
        None => idle(here, scheduler),
    }
}

/// Goes on with the idle thread.
#[cold]
fn idle(here: &Local, scheduler: SpinGuard<'static, Scheduler>) {
    here.set_alarm(scheduler.turns.next_event());
    go_on(here, scheduler, here.idle.load(Ordering::Relaxed));
}

#[inline]
fn go_on(here: &Local, scheduler: SpinGuard<'static, Scheduler>, to: *mut Thread) {
    let from = here.current.load(Ordering::Relaxed);
    here.current.store(to, Ordering::Relaxed);
    here.keep();
    // The thread that goes on releases the lock.
    core::mem::forget(scheduler);
    // SAFETY: the registers of `to` are saved where its stack says, and no other processor runs it: it was taken, or it
    // is this processor's own.
    unsafe {
        switch_to(&raw mut (*from).saved, (*to).saved);
        SCHEDULER.unlock();
    }
    free_over();
}

/// Frees the thread that this processor ran last, if that thread is over.
#[inline]
pub(super) fn free_over() {
    let over = &local().over;
    if !over.load(Ordering::Relaxed).is_null() {
        free(over.swap(null_mut(), Ordering::Relaxed));
    }
}

#[cold]
fn free(over: *mut Thread) {
    // SAFETY: it was made of a box, is on no queue, and this processor has left its stack.
    let thread = unsafe { Box::from_raw(over) };
    {
        let _scheduler = SCHEDULER.lock();
        // SAFETY: under the lock.
        unsafe { (*thread.account.share()).remove_thread() };
    }
    if let Some(stack) = thread.stack {
        // SAFETY: as above.
        unsafe { stack.free() };
    }
}

/// Sets the alarm to the end of the slice, or to the moment at which a sleeper wakes.
pub(super) fn arm(scheduler: &Scheduler, here: &Local) {
    let has_slice = !here.idles() && !here.is_over_time();
    // SAFETY: this processor's own.
    let end = unsafe { (*here.current.load(Ordering::Relaxed)).turn.end() };
    here.set_alarm(if has_slice { end } else { u64::MAX }.min(scheduler.turns.next_event()));
}

/// The processor's alarm has come.
pub(super) fn tick() {
    let here = local();
    here.alarm_has_come();
    let mut scheduler = SCHEDULER.lock();
    let now = timer::ticks();
    scheduler.wake_due(here, now);
    let thread = here.current.load(Ordering::Relaxed);
    // SAFETY: it runs here.
    unsafe {
        if !here.idles() && !here.is_over_time() && (*thread).turn.end() <= now {
            let has_slice = scheduler.turns.prolong(&raw mut (*thread).turn, now);
            here.is_over.store(!has_slice, Ordering::Relaxed);
        }
    }
    arm(&scheduler, here);
}

/// Whether this thread is to let others have the processor.
pub(crate) fn is_over_time() -> bool {
    local().is_over_time()
}

/// The same for a caller that knows the number of this processor.
///
/// # Safety
///
/// It is that number.
#[inline]
pub(crate) unsafe fn is_over_time_on(number: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { of(number) }.is_over_time()
}

/// Lets others that can run have the processor, which is `here`, before this thread has it again. It keeps the
/// processor if it comes before them. Not the idle thread, which is never told to.
pub(super) fn give_way(here: &Local) {
    // A thread that is woken by it takes the lock.
    here.leave();
    let mut scheduler = SCHEDULER.lock();
    let now = timer::ticks();
    let thread = here.current.load(Ordering::Relaxed);
    // No idle processor is to take it from here.
    // SAFETY: it runs here, and its registers are saved before the lock is given up.
    let to = unsafe { scheduler.turns.exchange(&raw mut (*thread).turn, now) };
    match to.map(<*mut Turn>::cast::<Thread>) {
        Some(to) if to != thread => switch(here, scheduler, to),
        Some(_) => {
            here.keep();
            arm(&scheduler, here);
        }
        None => idle(here, scheduler),
    }
}
