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
//! of those before it, divided by the processors.

use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use mayfly_arm64::spin::{SpinLock, wait_for_interrupt};
use mayfly_arm64::{cpu, timer};
use mayfly_vm::Kicker;
use mayfly_vm::platform::memory::OutOfMemory;

use super::{cpus, world};

mod queue;
mod sleep;
mod switch;

use queue::Queue;
pub(super) use sleep::{wait, wake, with_alarm};
pub(super) use switch::STACK_ORDER;

/// How long a thread has the processor while others want it: 10 ms.
const SLICE: u64 = 100;

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
    is_over: bool,
    number: u64,
    /// When it is asked for, and of whom.
    alarm: Option<(u64, Kicker)>,
}

struct Scheduler {
    ready: Queue,
    asleep: Queue,
    /// A bit for each processor that waits for a thread.
    idle: u64,
    /// The last number.
    numbers: u64,
}

// SAFETY: threads are reached through the scheduler alone, under its lock, or by themselves.
unsafe impl Send for Scheduler {}

static SCHEDULER: SpinLock<Scheduler> =
    SpinLock::new(Scheduler { ready: Queue::new(), asleep: Queue::new(), idle: 0, numbers: 0 });

/// Threads that sleep, or are about to.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);

/// What runs on each processor, and when its slice is over.
struct Local {
    current: AtomicPtr<Thread>,
    idle: AtomicPtr<Thread>,
    /// A thread that is over, whose stack the next one frees.
    over: AtomicPtr<Thread>,
    slice_end: AtomicU64,
    /// It is over, and others want the processor.
    is_over: AtomicBool,
    /// When the processor's timer is set to.
    alarm: AtomicU64,
}

static LOCAL: [Local; cpus::MAX] = [const {
    Local {
        current: AtomicPtr::new(null_mut()),
        idle: AtomicPtr::new(null_mut()),
        over: AtomicPtr::new(null_mut()),
        slice_end: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        alarm: AtomicU64::new(u64::MAX),
    }
}; cpus::MAX];

impl Local {
    fn begin_slice(&self, now: u64) {
        self.slice_end.store(now + timer::frequency() / SLICE, Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
    }
}

fn local() -> &'static Local {
    &LOCAL[cpu::number()]
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
            is_over: false,
            number: 0,
            alarm: None,
        }
    }
}

/// Makes this processor's flow of control the thread that runs when no other can. Once on each.
pub(super) fn adopt() {
    let thread = Box::into_raw(Box::new(Thread::new(None, None)));
    let mut scheduler = SCHEDULER.lock();
    scheduler.numbers += 1;
    // SAFETY: nobody else knows it yet.
    unsafe { (*thread).number = scheduler.numbers };
    local().current.store(thread, Ordering::Relaxed);
    local().idle.store(thread, Ordering::Relaxed);
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
    let thread = Box::into_raw(thread);
    let mut scheduler = SCHEDULER.lock();
    scheduler.numbers += 1;
    // SAFETY: nobody else knows it yet.
    unsafe { (*thread).number = scheduler.numbers };
    scheduler.make_ready(thread);
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

/// Has this thread do what it does when it gives its processor up. Returns whether there is something.
pub(super) fn leave() -> bool {
    // SAFETY: this thread's own; what it asked for may be called.
    unsafe {
        let asked = (*current()).leave;
        if let Some((leave, argument)) = asked {
            leave(argument);
        }
        asked.is_some()
    }
}

impl Scheduler {
    /// Puts a thread on the queue, and has a processor that idles look.
    fn make_ready(&mut self, thread: *mut Thread) {
        // SAFETY: the thread is on no queue, and its registers are saved, or will be before the lock is given up.
        unsafe {
            ((*thread).word, (*thread).deadline) = (0, u64::MAX);
            self.ready.push(thread);
        }
        if self.idle != 0 {
            let idle = self.idle.trailing_zeros() as usize;
            self.idle &= !(1 << idle);
            if idle != cpu::number() {
                cpus::kick(idle);
            }
        }
    }

    /// Wakes those whose time has come; returns when the next one's is.
    fn wake_due(&mut self, now: u64) -> u64 {
        while let Some(thread) = self.asleep.take(|thread| thread.deadline <= now) {
            SLEEPERS.fetch_sub(1, Ordering::Relaxed);
            self.make_ready(thread);
        }
        self.asleep.iter().map(|thread| thread.deadline).min().unwrap_or(u64::MAX)
    }
}

/// Has this processor go on with another thread, if there is one that can run, or with its own idling. The present one is
/// on the queue, asleep, or over, and has done what it does when it gives its processor up ([`leave`]).
fn switch(scheduler: mayfly_arm64::spin::SpinGuard<'static, Scheduler>) {
    let mut scheduler = scheduler;
    let here = local();
    let from = current();
    let to = scheduler.ready.pop().unwrap_or(here.idle.load(Ordering::Relaxed));
    if to == from {
        arm(&scheduler);
        return;
    }
    // SAFETY: `from` is this thread.
    unsafe {
        if (*from).is_over {
            here.over.store(from, Ordering::Relaxed);
        }
    }
    here.current.store(to, Ordering::Relaxed);
    here.begin_slice(timer::ticks());
    arm(&scheduler);
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
    // SAFETY: as above.
    unsafe { (*current()).is_over = true };
    switch(SCHEDULER.lock());
    unreachable!("nobody goes on with a thread that is over");
}

/// Frees the thread that this processor was on last, if it is over.
fn free_over() {
    let over = local().over.swap(null_mut(), Ordering::Relaxed);
    if over.is_null() {
        return;
    }
    // SAFETY: it was made of a box, is on no queue, and this processor has left its stack.
    let thread = unsafe { Box::from_raw(over) };
    if let Some(frames) = thread.frames {
        // SAFETY: as above.
        unsafe { world::free_frames_of(frames, STACK_ORDER) };
    }
}

/// Sets the processor's timer to the end of the slice, or to when a sleeper wakes.
fn arm(scheduler: &Scheduler) {
    let here = local();
    let idles = current() == here.idle.load(Ordering::Relaxed);
    let slice = if idles { u64::MAX } else { here.slice_end.load(Ordering::Relaxed) };
    let sleeper = scheduler.asleep.iter().map(|thread| thread.deadline).min().unwrap_or(u64::MAX);
    let alarm = slice.min(sleeper);
    if here.alarm.swap(alarm, Ordering::Relaxed) != alarm {
        timer::set_alarm((alarm != u64::MAX).then_some(alarm));
    }
}

/// The processor's timer has come.
pub(super) fn tick() {
    let here = local();
    here.alarm.store(u64::MAX, Ordering::Relaxed);
    timer::set_alarm(None);
    let mut scheduler = SCHEDULER.lock();
    let now = timer::ticks();
    scheduler.wake_due(now);
    if here.slice_end.load(Ordering::Relaxed) <= now {
        here.begin_slice(now);
        here.is_over.store(!scheduler.ready.is_empty(), Ordering::Relaxed);
    }
    arm(&scheduler);
}

/// Whether this thread's slice is over, and others want the processor.
pub(super) fn is_over_time() -> bool {
    local().is_over.load(Ordering::Relaxed)
}

/// Lets others that can run have the processor before this thread has it again.
pub(super) fn give_way() {
    // What that wakes takes the lock.
    leave();
    let mut scheduler = SCHEDULER.lock();
    if scheduler.ready.is_empty() {
        local().begin_slice(timer::ticks());
        return arm(&scheduler);
    }
    let thread = current();
    if thread != local().idle.load(Ordering::Relaxed) {
        // Not `make_ready`: no idle processor is to take it from here.
        scheduler.ready.push(thread);
    }
    switch(scheduler);
}

/// A point of long work: what has interrupted meanwhile is seen to, and others have the processor if the slice is over.
pub(super) fn preemption_point() {
    world::take_interrupts();
    if is_over_time() {
        give_way();
    }
}

/// What an idle processor does, for good: runs what can run, and waits for interrupts.
pub(super) fn idle() -> ! {
    loop {
        world::take_interrupts();
        let mut scheduler = SCHEDULER.lock();
        scheduler.wake_due(timer::ticks());
        if scheduler.ready.is_empty() {
            scheduler.idle |= 1 << cpu::number();
            arm(&scheduler);
            drop(scheduler);
            wait_for_interrupt();
            SCHEDULER.lock().idle &= !(1 << cpu::number());
        } else {
            switch(scheduler);
        }
    }
}
