//! A thread.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::mem::offset_of;

use mayfly_hypervisor::sleepers::Sleeper;
use mayfly_hypervisor::turns::Turn;
use mayfly_vm::Kicker;

use super::account::Account;
use super::stack::Stack;

/// What a thread is, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    what: &'static str,
    number: Option<u32>,
}

impl Name {
    /// `what` it is.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, number: None }
    }

    /// One of several.
    pub(crate) const fn numbered(what: &'static str, number: u32) -> Self {
        Self { what, number: Some(number) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        self.number.map_or(Ok(()), |number| write!(f, " {number}"))
    }
}

/// What a thread calls when it gives its processor up, and the argument.
pub(crate) type Leave = (unsafe fn(*mut ()), *mut ());

/// A thread.
#[repr(C)]
pub(super) struct Thread {
    /// What the scheduler knows of it. First: a pointer to it is one to the thread.
    pub(super) turn: Turn,
    /// The address of its saved registers, while it has no processor.
    pub(super) saved: usize,
    /// Its stack; none for the thread of an idle processor.
    pub(super) stack: Option<Stack>,
    /// What it is among those that sleep.
    pub(super) sleeper: Sleeper,
    /// What it does; taken when it begins.
    pub(super) work: Option<Box<dyn FnOnce() + Send>>,
    /// What it calls when it gives its processor up.
    pub(super) leave: Option<Leave>,
    pub(super) number: u64,
    /// When its sleep in [`with_alarm`](super::with_alarm) ends, and the vCPU that is asked then.
    pub(super) alarm: Option<(u64, Kicker)>,
    /// What its processor time is charged to.
    pub(super) account: Arc<Account>,
    pub(super) name: Name,
    /// Until when other accounts were charged for what it has had, in ticks.
    pub(super) billed: u64,
}

impl Thread {
    /// The thread that `sleeper` is of.
    ///
    /// # Safety
    ///
    /// It is of a thread.
    pub(super) unsafe fn of(sleeper: *mut Sleeper) -> *mut Self {
        // SAFETY: the caller's promise.
        unsafe { sleeper.byte_sub(offset_of!(Self, sleeper)).cast() }
    }

    pub(super) fn new(
        name: Name,
        account: Arc<Account>,
        stack: Option<Stack>,
        work: Option<Box<dyn FnOnce() + Send>>,
    ) -> Self {
        Self {
            turn: Turn::new(account.share()),
            saved: 0,
            stack,
            sleeper: Sleeper::new(),
            work,
            leave: None,
            number: 0,
            alarm: None,
            account,
            name,
            billed: 0,
        }
    }
}
