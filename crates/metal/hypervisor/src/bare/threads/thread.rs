//! A thread.

use alloc::boxed::Box;
use core::num::NonZeroU64;
use core::ptr::null_mut;

use mayfly_vm::Kicker;
use mayfly_vm::platform::address::Pfn;

/// What a thread calls when it gives its processor up, and the argument.
pub(crate) type Leave = (unsafe fn(*mut ()), *mut ());

/// A thread.
pub(super) struct Thread {
    /// The address of its saved registers, while it has no processor.
    pub(super) stack: usize,
    /// The frames of its stack; none for the thread of an idle processor.
    pub(super) frames: Option<Pfn>,
    pub(super) next: *mut Thread,
    /// The address of the word that it sleeps for; 0 if it does not sleep.
    pub(super) word: usize,
    /// When it wakes by itself, in ticks; `u64::MAX` for never.
    pub(super) deadline: u64,
    /// What it does; taken when it begins.
    pub(super) work: Option<Box<dyn FnOnce() + Send>>,
    /// What it calls when it gives its processor up.
    pub(super) leave: Option<Leave>,
    pub(super) number: u64,
    /// Since when it has been on the queue of threads that can run, in ticks.
    pub(super) ready_since: u64,
    /// How many threads could run when it was queued, itself and the running ones included.
    pub(super) rivals: NonZeroU64,
    /// When its sleep in [`with_alarm`](super::with_alarm) ends, and the vCPU that is asked then.
    pub(super) alarm: Option<(u64, Kicker)>,
}

impl Thread {
    pub(super) fn new(frames: Option<Pfn>, work: Option<Box<dyn FnOnce() + Send>>) -> Self {
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
