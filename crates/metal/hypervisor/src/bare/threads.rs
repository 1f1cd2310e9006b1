//! Threads, and how they wait. Each vCPU is a thread, and so are the worker, the reclaimer and the monitor. There are
//! more threads than processors.
//!
//! Interrupts are always masked at EL2. A processor looks for them where that does no harm: when it is idle, at a
//! [`preemption_point`], and when it has left a guest. So a thread gives its processor up only in a call to this
//! folder, and a handler of an interrupt never runs on top of a lock.
//!
//! One lock, `scheduler::SCHEDULER`, holds the queue of threads that can run, in the order in which they became able to
//! run, and the threads that sleep. It is held across a switch: the thread that goes on releases it. So the registers
//! of a thread that is queued or asleep are saved.
//!
//! **No wake-up is lost.** [`wait`] compares the word under the lock. A thread that changes the word and then calls
//! [`wake`] takes the lock unless no thread sleeps. A sleeper counts itself in `scheduler::SLEEPERS`, passes a full
//! fence, and then loads the word. The waker has changed the word, passes a full fence, and then loads the count. One
//! of them sees the other.
//!
//! **No processor is idle beside a thread that can run.** A processor marks itself idle under the lock, after it has
//! found the queue empty. A thread that queues another takes the mark of an idle processor under the lock, and kicks
//! that processor. The kick is pending when the processor waits for one, masked or not.
//!
//! A preempted thread goes to the end of the queue. So a thread that can run waits for at most one slice of each thread
//! before it, divided by the number of processors. The longest wait is measured ([`longest_wait`]).

mod arm64;
mod course;
mod local;
mod preemption;
mod queue;
mod scheduler;
mod sleep;
mod spawn;
mod thread;
mod waking;

pub(crate) mod console;
pub(crate) mod frames;
pub(crate) mod interrupts;
pub(crate) mod kick;

use arm64 as arch;

pub(crate) use arch::STACK_ORDER;
pub(crate) use course::{adopt, is_over_time, number, on_leave};
pub(crate) use preemption::{idle, preemption_point};
pub(crate) use scheduler::longest_wait;
pub(crate) use sleep::{wait, with_alarm};
pub(crate) use spawn::{spawn, spawn_for};
pub(crate) use waking::wake;
