//! The control protocol: a program on the host has the monitor make VMs, start them, fork them and end them, and is told
//! what becomes of them. One JSON object is one line, in and out.
//!
//! # In
//!
//! A request has `version`, which is 1, a number `id`, and what to `do`:
//!
//! | `do` | further fields | what it does |
//! | --- | --- | --- |
//! | `create` | `name`, `like`; `parameters`, `arguments` | `vm create`: a VM with the kernel and ramdisks of VM `like` |
//! | `start`, `stop`, `destroy` | `name` | as the commands of the monitor |
//! | `freeze` | `name` | ends the VM, and keeps what it was |
//! | `reset` | `name` | has a fork go on as its frozen VM was, again |
//! | `fork` | `name`, `from`; `count`, `parameters` | one VM that goes on as the frozen VM `from` was, or as `from` is that runs, or `count` of them |
//! | `balloon` | `name`, `size` | asks the guest of a VM to give back so much of its memory: a text, such as `"256M"` |
//! | `stat` | `name`, or none for all VMs | says what VMs have |
//!
//! The fields before the semicolon have to be there. `parameters` is a list of at most 12 texts, such as `["vcpus=2"]`. A field
//! that does not belong to the request is an error, and so is one that is there twice: nobody's typing error changes what is
//! done. A line ends by a line feed or a carriage return, and an empty one means nothing. A program begins with an empty
//! line: the one before it may have left half a line.
//!
//! ```text
//! {"version":1,"id":7,"do":"fork","name":"web","from":"linux","count":2,"parameters":["overcommit=yes"]}
//! ```
//!
//! # Out
//!
//! Each line that is not empty has one answer, with its `id`. `stat` has a line for each VM before.
//!
//! ```text
//! {"version":1,"id":7,"ok":true}
//! {"version":1,"id":8,"vm":{"name":"web-0","state":"running","vcpus":1,"memory":134217728,"used":2605056,"cpu":101}}
//! {"version":1,"id":9,"error":"refused","message":"there is no VM web"}
//! ```
//!
//! `error` is one of `line-too-long`, `not-a-request` (it is no JSON object, or has a field that no request has, or a value
//! of another kind), `version`, `no-such-request`, `field` (one is missing, does not belong there, or has a value that
//! cannot be) and `refused` (the monitor could not do it). `message` is for people; for `field`, it is the name of the
//! field. Where a line is no request, `id` is `null`.
//!
//! Requests are done one after the other. The next line is read when the answer to the one before has gone out. A program
//! that has gone gets no answer, but what it has asked for is done.
//!
//! What happens to VMs by itself comes in between: `ended`, `out-of-memory` and `crashed`, with the `name`. What has happened
//! before an answer was there is said before it, and what happens later after it. An event waits until a program is there. Events that nobody has read in time are lost, which is said as well:
//!
//! ```text
//! {"version":1,"event":"ended","name":"web-0"}
//! {"version":1,"event":"lost","count":3}
//! ```
//!
//! # Bounds
//!
//! A line has at most [`LONGEST`] bytes, in and out, and one that comes has at most 32 backslashes. Of a longer one nothing is
//! kept, and its end is awaited. What is read of a line takes a few times its bytes of memory, and no deeper calls than the
//! longest request: none has a list in a list.

mod desk;
mod lines;
mod request;
mod said;
mod talk;

pub use desk::{Asked, Desk, LineBytes, Next};
pub use lines::{LONGEST, Line, Lines};
pub use mayfly_desk::{Endings, Event, Events, Name};
pub use request::{Refused, Request, Why};
pub use said::{Said, Vm};
pub use talk::{Locked, Port, Talk};

/// The version of the protocol.
pub const VERSION: u32 = 1;

#[cfg(test)]
mod tests;
