//! Threads: each vCPU is one, and so are the worker, the reclaimer and the monitor; more of them than processors.
//!
//! Interrupts are masked at EL2, always, and looked for where that does no harm: in an idle processor, at a
//! [`preemption_point`], and when a guest is left. So a thread gives its processor up only where it calls something here,
//! and an interrupt's handler runs on top of no lock.
//!
//! One lock, [`SCHEDULER`], holds the queue of threads that can run, in the order in which they became able to, and those
//! that sleep. It is held across a switch: the thread that goes on gives it up. So a thread that is on the queue, or
//! asleep, has its registers where they belong.
//!
//! **No wake-up is lost.** [`wait`] compares the word under the lock; who changes the word and then calls [`wake`] takes
//! the lock unless nobody sleeps. A sleeper counts itself in [`SLEEPERS`], passes a full fence, and then loads the word;
//! the waker has changed the word, passes a full fence, and then loads the count: one of them sees the other.
//!
//! **No processor idles beside a thread that can run.** A processor says that it is idle under the lock, having found
//! the queue empty; who puts a thread on the queue takes an idle processor's mark under the lock, and kicks it. The kick
//! is pending when the processor waits for one, masked or not.
//!
//! A thread that is preempted goes to the end of the queue, so a thread that can run waits for at most a slice of each
//! of those before it, divided by the processors. The longest wait is measured ([`longest_wait`]).

use alloc::boxed::Box;
use core::num::NonZeroU64;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use mayfly_arm64::spin::{SpinGuard, wait_for_interrupt};
use mayfly_arm64::{cpu, timer};
use mayfly_vm::Kicker;
use mayfly_vm::platform::memory::OutOfMemory;

use super::{cpus, masked, world};

mod local;
mod queue;
mod scheduler;
mod sleep;
mod switch;

use local::{Local, local};
pub(super) use scheduler::longest_wait;
use scheduler::{SCHEDULER, Scheduler};
pub(super) use sleep::{wait, wake, with_alarm};
pub(super) use switch::STACK_ORDER;

/// What is done when a thread gives its processor up, and to what.
pub(super) type Leave = (unsafe fn(*mut ()), *mut ());

/// A thread.
pub(super) struct Thread {
    /// Where its registers are, while it has no processor.
    stack: usize,
    /// The frames of its stack; none for an idle processor's.
    frames: Option<mayfly_vm::platform::address::Pfn>,
    next: *mut Thread,
    /// The address of the word that it sleeps for; 0 if it does not.
    word: usize,
    /// When it wakes by itself, in ticks; `u64::MAX` for never.
    deadline: u64,
    /// What it does; taken when it begins.
    work: Option<Box<dyn FnOnce() + Send>>,
    /// What is done when it gives its processor up.
    leave: Option<Leave>,
    number: u64,
    /// Since when it has been on the queue of threads that can run, in ticks.
    ready_since: u64,
    /// How many could run when it came there, it and those that did run included.
    rivals: NonZeroU64,
    /// When it is asked for, and of whom.
    alarm: Option<(u64, Kicker)>,
}

fn current() -> *mut Thread {
    local().current.load(Ordering::Relaxed)
}

impl Thread {
    fn new(
        frames: Option<mayfly_vm::platform::address::Pfn>,
        work: Option<Box<dyn FnOnce() + Send>>,
    ) -> Self {
        Self {
            stack: 0,
            frames,
            next: null_mut(),
            word: 0,
            deadline: u64::MAX,
            work,
            leave: None,
            number: 0,
            ready_since: 0,
            rivals: NonZeroU64::MIN,
            alarm: None,
        }
    }
}

/// Makes this processor's flow of control the thread that runs when no other can. Once on each.
pub(super) fn adopt() {
    let mut thread = Box::new(Thread::new(None, None));
    let mut scheduler = SCHEDULER.lock();
    scheduler.add_processor();
    thread.number = scheduler.number();
    local().begin(Box::into_raw(thread));
}

/// Has a new thread do `work`.
///
/// # Errors
///
/// [`OutOfMemory`], when there is none for its stack.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), OutOfMemory> {
    let frames = world::allocate_frames(STACK_ORDER).ok_or(OutOfMemory)?;
    let mut thread = Box::new(Thread::new(Some(frames), Some(Box::new(work))));
    thread.stack = switch::prepare(frames);
    let mut scheduler = SCHEDULER.lock();
    thread.number = scheduler.number();
    scheduler.make_ready(Box::into_raw(thread), timer::ticks());
    Ok(())
}

/// The number of the thread that runs here.
pub(super) fn number() -> u64 {
    let thread = current();
    if thread.is_null() {
        return 0;
    }
    // SAFETY: it is this thread's, which is there.
    unsafe { (*thread).number }
}

/// Has `leave` be called with `argument` each time that this thread gives its processor up.
///
/// # Safety
///
/// It may be called so until [`on_leave`] is called with something else, or the thread is over; it neither waits nor
/// calls anything here.
pub(super) unsafe fn on_leave(leave: Option<Leave>) {
    // SAFETY: this thread's own.
    unsafe { (*current()).leave = leave };
}

/// Has this thread do what it does when it gives its processor up.
pub(super) fn leave() {
    local().leave();
}

/// Has this processor, which is `here`, go on with `to`, another thread that can run, or its own idling. The present one is
/// on the queue, asleep, or over, and has done what it does when it gives its processor up ([`leave`]).
#[inline]
fn switch(here: &Local, scheduler: SpinGuard<'static, Scheduler>, to: *mut Thread, now: u64) {
    let from = here.current.load(Ordering::Relaxed);
    here.current.store(to, Ordering::Relaxed);
    let end = here.begin_slice(now);
    if to == here.idle.load(Ordering::Relaxed) {
        here.set_alarm(scheduler.next_wake);
    } else {
        here.set_alarm_to(end.min(scheduler.next_wake));
    }
    // The thread that goes on gives the lock up.
    core::mem::forget(scheduler);
    // SAFETY: `to` has its registers saved where its stack says, and nobody else runs it: it was on the queue, or it is
    // this processor's own.
    unsafe {
        switch::to(&raw mut (*from).stack, (*to).stack);
        SCHEDULER.unlock();
    }
    free_over();
}

/// What a thread does when it begins: on its own stack, with the lock held.
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
    unreachable!("nobody goes on with a thread that is over");
}

/// Frees the thread that this processor was on last, if it is over.
#[inline]
fn free_over() {
    let over = &local().over;
    if !over.load(Ordering::Relaxed).is_null() {
        free(over.swap(null_mut(), Ordering::Relaxed));
    }
}

#[cold]
fn free(over: *mut Thread) {
    // SAFETY: it was made of a box, is on no queue, and this processor has left its stack.
    let thread = unsafe { Box::from_raw(over) };
    if let Some(frames) = thread.frames {
        // SAFETY: as above.
        unsafe { world::free_frames_of(frames, STACK_ORDER) };
    }
}

/// Sets the processor's timer to the end of the slice, or to when a sleeper wakes.
fn arm(scheduler: &Scheduler, here: &Local) {
    let slice = if here.idles() { u64::MAX } else { here.slice_end.load(Ordering::Relaxed) };
    here.set_alarm(slice.min(scheduler.next_wake));
}

/// The processor's timer has come.
pub(super) fn tick() {
    let here = local();
    here.alarm_has_come();
    let mut scheduler = SCHEDULER.lock();
    let now = timer::ticks();
    scheduler.wake_due(now);
    if here.slice_end.load(Ordering::Relaxed) <= now {
        here.begin_slice(now);
        here.is_over.store(scheduler.has_ready(), Ordering::Relaxed);
    }
    arm(&scheduler, here);
}

/// Whether this processor has come so far that it runs threads.
pub(super) fn has_begun() -> bool {
    !current().is_null()
}

/// Whether this thread's slice is over, and others want the processor.
pub(super) fn is_over_time() -> bool {
    local().is_over_time()
}

/// After interrupts were seen to where others cannot have the processor: if the slice is over, a guest that is entered comes
/// out again at once, by an interrupt of this processor's own, so that they have it then.
pub(super) fn remember_slice() {
    if is_over_time() {
        cpus::kick(cpu::number());
    }
}

/// Lets others that can run have the processor, which is this one, before this thread has it again.
fn give_way(here: &Local) {
    // What that wakes takes the lock.
    here.leave();
    let mut scheduler = SCHEDULER.lock();
    let now = timer::ticks();
    let Some(to) = scheduler.take(now) else {
        here.begin_slice(now);
        return arm(&scheduler, here);
    };
    let thread = here.current.load(Ordering::Relaxed);
    if thread != here.idle.load(Ordering::Relaxed) {
        // Not `make_ready`: no idle processor is to take it from here.
        scheduler.queue(thread, now);
    }
    switch(here, scheduler, to, now);
}

/// A point of long work: what has interrupted meanwhile is seen to, and others have the processor if the slice is over.
pub(super) fn preemption_point() {
    let here = local();
    // The thread that has the processor next sees to what has interrupted, or is interrupted by it.
    if here.is_over_time() {
        return give_way(here);
    }
    world::take_interrupts();
    if here.is_over_time() {
        give_way(here);
    }
}

/// What an idle processor does, for good: runs what can run, and waits for interrupts.
pub(super) fn idle() -> ! {
    loop {
        world::take_interrupts();
        let mut scheduler = SCHEDULER.lock();
        let now = timer::ticks();
        scheduler.wake_due(now);
        if let Some(to) = scheduler.take(now) {
            switch(local(), scheduler, to, now);
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
