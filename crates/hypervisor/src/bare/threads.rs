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

use mayfly_arm64::spin::{SpinGuard, SpinLock, wait_for_interrupt};
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
    number: u64,
    /// When it is asked for, and of whom.
    alarm: Option<(u64, Kicker)>,
}

struct Scheduler {
    ready: Queue,
    asleep: Queue,
    /// No sleeper wakes by itself before that, in ticks.
    next_wake: u64,
    /// A bit for each processor that waits for a thread.
    idle: u64,
    /// The last number.
    numbers: u64,
}

// SAFETY: threads are reached through the scheduler alone, under its lock, or by themselves.
unsafe impl Send for Scheduler {}

static SCHEDULER: SpinLock<Scheduler> = SpinLock::new(Scheduler {
    ready: Queue::new(),
    asleep: Queue::new(),
    next_wake: u64::MAX,
    idle: 0,
    numbers: 0,
});

/// A slice, in ticks.
static SLICE_TICKS: AtomicU64 = AtomicU64::new(0);

/// Threads that sleep, or are about to.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);

/// What runs on each processor, and when its slice is over. In cache lines of its own.
#[repr(align(64))]
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
    /// Has the thread that runs here, which asks, do what it does when it gives its processor up.
    fn leave(&self) {
        // SAFETY: the thread's own; what it asked for may be called.
        unsafe {
            if let Some((leave, argument)) = (*self.current.load(Ordering::Relaxed)).leave {
                leave(argument);
            }
        }
    }

    /// Whether the slice of the thread that runs here is over, and others want the processor.
    fn is_over_time(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn begin_slice(&self, now: u64) {
        self.slice_end.store(now + SLICE_TICKS.load(Ordering::Relaxed), Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
    }
}

fn local() -> &'static Local {
    // SAFETY: processors are numbered below `cpus::MAX`, each before it comes here (`cpus::prepare`).
    unsafe { LOCAL.get_unchecked(cpu::number()) }
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
            alarm: None,
        }
    }
}

/// Makes this processor's flow of control the thread that runs when no other can. Once on each.
pub(super) fn adopt() {
    SLICE_TICKS.store(timer::frequency() / SLICE, Ordering::Relaxed);
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

/// Has this thread do what it does when it gives its processor up.
pub(super) fn leave() {
    local().leave();
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

    /// Takes the thread that a processor that has none is to go on with.
    fn next(&mut self, here: &Local) -> *mut Thread {
        self.ready.pop().unwrap_or(here.idle.load(Ordering::Relaxed))
    }

    /// Puts a thread that has said what it sleeps for, and until when, to sleep.
    fn put_to_sleep(&mut self, thread: *mut Thread) {
        // SAFETY: the thread is the one that asks.
        self.next_wake = self.next_wake.min(unsafe { (*thread).deadline });
        self.asleep.push(thread);
    }

    /// Wakes those whose time has come.
    fn wake_due(&mut self, now: u64) {
        if now < self.next_wake {
            return;
        }
        while let Some(thread) = self.asleep.take(|thread| thread.deadline <= now) {
            SLEEPERS.fetch_sub(1, Ordering::Relaxed);
            self.make_ready(thread);
        }
        let next = self.asleep.iter().map(|thread| thread.deadline).min();
        self.next_wake = next.unwrap_or(u64::MAX);
    }
}

/// Has this processor, which is `here`, go on with `to`, another thread that can run, or its own idling. The present one is
/// on the queue, asleep, or over, and has done what it does when it gives its processor up ([`leave`]).
#[inline]
fn switch(here: &Local, scheduler: SpinGuard<'static, Scheduler>, to: *mut Thread) {
    let from = here.current.load(Ordering::Relaxed);
    here.current.store(to, Ordering::Relaxed);
    here.begin_slice(timer::ticks());
    arm(&scheduler, here);
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
    here.over.store(here.current.load(Ordering::Relaxed), Ordering::Relaxed);
    let to = scheduler.next(here);
    switch(here, scheduler, to);
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
    let idles = here.current.load(Ordering::Relaxed) == here.idle.load(Ordering::Relaxed);
    let slice = if idles { u64::MAX } else { here.slice_end.load(Ordering::Relaxed) };
    let alarm = slice.min(scheduler.next_wake);
    if here.alarm.load(Ordering::Relaxed) != alarm {
        here.alarm.store(alarm, Ordering::Relaxed);
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
    arm(&scheduler, here);
}

/// Whether this thread's slice is over, and others want the processor.
pub(super) fn is_over_time() -> bool {
    local().is_over_time()
}

/// Lets others that can run have the processor, which is this one, before this thread has it again.
fn give_way(here: &Local) {
    // What that wakes takes the lock.
    here.leave();
    let mut scheduler = SCHEDULER.lock();
    let Some(to) = scheduler.ready.pop() else {
        here.begin_slice(timer::ticks());
        return arm(&scheduler, here);
    };
    let thread = here.current.load(Ordering::Relaxed);
    if thread != here.idle.load(Ordering::Relaxed) {
        // Not `make_ready`: no idle processor is to take it from here.
        scheduler.ready.push(thread);
    }
    switch(here, scheduler, to);
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
        scheduler.wake_due(timer::ticks());
        if let Some(to) = scheduler.ready.pop() {
            switch(local(), scheduler, to);
        } else {
            scheduler.idle |= 1 << cpu::number();
            arm(&scheduler, local());
            drop(scheduler);
            wait_for_interrupt();
            SCHEDULER.lock().idle &= !(1 << cpu::number());
        }
    }
}
