//! The thread that each processor runs, and whether it is to give the processor up.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use mayfly_hypervisor::processors::Processors;

use super::thread::Thread;
use crate::bare::processor::{cpu, cpus, timer};

/// What runs on a processor. In cache lines of its own. The scheduler's lock is held where what runs changes, and where
/// another processor says that it is to give way.
#[repr(align(64))]
pub(crate) struct Local {
    pub(crate) current: AtomicPtr<Thread>,
    pub(crate) idle: AtomicPtr<Thread>,
    /// A thread that is over, whose stack the next one frees.
    pub(crate) over: AtomicPtr<Thread>,
    /// The thread that runs here is to let others have the processor.
    pub(crate) is_over: AtomicBool,
    /// When the processor's timer is set to.
    alarm: AtomicU64,
}

static LOCAL: [Local; cpus::MAX] = [const {
    Local {
        current: AtomicPtr::new(null_mut()),
        idle: AtomicPtr::new(null_mut()),
        over: AtomicPtr::new(null_mut()),
        is_over: AtomicBool::new(false),
        alarm: AtomicU64::new(u64::MAX),
    }
}; cpus::MAX];

/// This processor's.
#[inline]
pub(crate) fn local() -> &'static Local {
    // SAFETY: this processor's number.
    unsafe { of(cpu::number()) }
}

/// That of processor `number`.
///
/// # Safety
///
/// It is the number of this processor.
#[inline]
pub(super) unsafe fn of(number: usize) -> &'static Local {
    // SAFETY: processors are numbered below `cpus::MAX`, each before it comes here (`this_cpu::prepare`).
    unsafe { LOCAL.get_unchecked(number) }
}

/// These processors, and their numbers.
pub(crate) fn running(processors: Processors) -> impl Iterator<Item = (usize, &'static Local)> {
    processors.numbers().map(|number| (number, &LOCAL[number]))
}

impl Local {
    /// This processor runs `idle`, from which it takes threads.
    pub(crate) fn begin(&self, idle: *mut Thread) {
        self.current.store(idle, Ordering::Relaxed);
        self.idle.store(idle, Ordering::Relaxed);
    }

    /// Does what the thread that runs here, the caller's, does when it gives its processor up.
    #[inline]
    pub(crate) fn leave(&self) {
        // SAFETY: the thread's own; what it asked for may be called.
        unsafe {
            if let Some((leave, argument)) = (*self.current.load(Ordering::Relaxed)).leave {
                leave(argument);
            }
        }
    }

    /// Whether the thread that runs here is to let others have the processor.
    #[inline]
    pub(crate) fn is_over_time(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether nothing runs here.
    pub(crate) fn idles(&self) -> bool {
        self.current.load(Ordering::Relaxed) == self.idle.load(Ordering::Relaxed)
    }

    /// The thread that runs here need not let others have the processor.
    #[inline]
    pub(crate) fn keep(&self) {
        self.is_over.store(false, Ordering::Relaxed);
    }

    /// Sets the processor's timer, or to nothing by `u64::MAX`.
    #[inline]
    pub(crate) fn set_alarm(&self, alarm: u64) {
        if self.alarm.load(Ordering::Relaxed) != alarm {
            self.alarm.store(alarm, Ordering::Relaxed);
            timer::set_alarm((alarm != u64::MAX).then_some(alarm));
        }
    }

    /// Sets it to a moment that it is not set to.
    #[inline]
    pub(crate) fn set_alarm_to(&self, alarm: u64) {
        self.alarm.store(alarm, Ordering::Relaxed);
        timer::set_alarm(Some(alarm));
    }

    /// The processor's timer has come, and is set to nothing.
    pub(crate) fn alarm_has_come(&self) {
        self.alarm.store(u64::MAX, Ordering::Relaxed);
        timer::set_alarm(None);
    }
}
