//! The thread that each processor runs, and the end of its slice.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::thread::Thread;
use crate::bare::processor::{cpu, cpus, timer};

/// How long a thread has the processor while others want it: 10 ms.
const SLICE: u64 = 100;

/// A slice, in ticks.
static SLICE_TICKS: AtomicU64 = AtomicU64::new(0);

/// What runs on a processor, and when its slice is over. In cache lines of its own.
#[repr(align(64))]
pub(crate) struct Local {
    pub(crate) current: AtomicPtr<Thread>,
    pub(crate) idle: AtomicPtr<Thread>,
    /// A thread that is over, whose stack the next one frees.
    pub(crate) over: AtomicPtr<Thread>,
    pub(crate) slice_end: AtomicU64,
    /// It is over, and others want the processor.
    pub(crate) is_over: AtomicBool,
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

/// This processor's.
#[inline]
pub(crate) fn local() -> &'static Local {
    // SAFETY: processors are numbered below `cpus::MAX`, each before it comes here (`this_cpu::prepare`).
    unsafe { LOCAL.get_unchecked(cpu::number()) }
}

/// A slice, in ticks of a counter of that frequency.
pub(crate) fn slice(frequency: u64) -> u64 {
    (frequency / SLICE).max(1)
}

impl Local {
    /// This processor runs `idle`, from which it takes threads.
    pub(crate) fn begin(&self, idle: *mut Thread) {
        SLICE_TICKS.store(slice(timer::frequency()), Ordering::Relaxed);
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

    /// Whether the slice of the thread that runs here is over, and others want the processor.
    #[inline]
    pub(crate) fn is_over_time(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether nothing runs here.
    pub(crate) fn idles(&self) -> bool {
        self.current.load(Ordering::Relaxed) == self.idle.load(Ordering::Relaxed)
    }

    /// The thread that runs here has a slice from now on. Returns when the slice ends.
    #[inline]
    pub(crate) fn begin_slice(&self, now: u64) -> u64 {
        let end = now + SLICE_TICKS.load(Ordering::Relaxed);
        self.slice_end.store(end, Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
        end
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
