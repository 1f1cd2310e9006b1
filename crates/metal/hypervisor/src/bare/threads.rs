//! Threads, and how they wait. Each vCPU is a thread, and so are the worker, the reclaimer and the monitor. There are
//! more threads than processors.
//!
//! Interrupts are always masked at EL2. A processor looks for them where that does no harm: when it is idle, at a
//! [`preemption_point`], and when it has left a guest. So a thread gives its processor up only in a call to this
//! folder, and a handler of an interrupt never runs on top of a lock.
//!
//! One lock, `scheduler::SCHEDULER`, holds the threads that can run, and the threads that sleep. [`turns`] decides which
//! of them a processor takes. It is held across a switch: the thread that goes on releases it. So the registers
//! of a thread that waits for a processor or sleeps are saved.
//!
//! **No wake-up is lost.** [`wait`] compares the word under the lock. A thread that changes the word and then calls
//! [`wake`] takes the lock unless no thread sleeps. A sleeper counts itself in `scheduler::SLEEPERS`, passes a full
//! fence, and then loads the word. The waker has changed the word, passes a full fence, and then loads the count. One
//! of them sees the other.
//!
//! **No guest decides how long interrupts are masked** by how many of its threads sleep, and when. At most eight threads
//! are woken in a row, whether for a word or because their time has come. If there are more, the processor's alarm is
//! due, and the next eight are woken when it looks for interrupts. The time is charged to the account of each thread
//! that is woken, unless the processor was idle.
//!
//! **No processor is idle beside a thread that can run.** A processor marks itself idle under the lock, after it has
//! found that no thread waits. A thread that wakes another takes the mark of an idle processor under the lock, and kicks
//! that processor. The kick is pending when the processor waits for one, masked or not.
//!
//! **A thread loses its processor** for two reasons. Its slice is over: then the processor's own timer has come. Or a
//! thread has woken that comes before it: then the waker sets [`is_over`](local::Local::is_over) of the processor, under
//! the lock, and kicks it, unless it is its own: a processor looks at its mark at each [`preemption_point`], and before each
//! entry to a guest. A switch clears the mark, under the lock, too; so a mark is of the thread that runs there. A
//! thread that gives its processor up waits with the others, and may come first: then it keeps the processor.
//!
//! The longest wait of a thread is measured ([`longest_wait`]).
//!
//! [`turns`]: mayfly_hypervisor::turns

mod account;
#[cfg(target_arch = "aarch64")]
mod arm64;
mod bell;
mod course;
mod local;
mod overflow;
mod preemption;
mod scheduler;
mod sleep;
mod spawn;
mod stack;
mod thread;
mod waking;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) mod console;
pub(crate) mod frames;
pub(crate) mod interrupts;
pub(crate) mod kick;

#[cfg(target_arch = "aarch64")]
use arm64 as arch;
#[cfg(target_arch = "x86_64")]
use x86 as arch;

pub(crate) use account::Account;
pub(crate) use arch::paging::STACKS_AT;
pub(crate) use bell::Bell;
pub(crate) use course::{
    ThisThread, adopt, has_worked_for, is_over_time, is_over_time_on, number, on_leave,
    work_in_background,
};
pub(crate) use overflow::{overflow, overflow_idle};
pub(crate) use preemption::{idle, preemption_point};
pub(crate) use scheduler::longest_wait;
pub(crate) use sleep::{wait, with_alarm};
pub(crate) use spawn::{spawn, spawn_for, spawn_in, spawn_vcpu};
pub(crate) use stack::{Depth, Stack, is_in_slot, measure_stacks, prepare_stacks};
pub(crate) use thread::Name;
pub(crate) use waking::wake;
