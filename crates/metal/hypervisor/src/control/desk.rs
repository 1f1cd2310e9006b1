//! The desk of this protocol: what is asked for there, and how long a line is.

use super::lines::LONGEST;
use super::request::Request;

/// The bytes of a line, with its end.
pub type LineBytes = [u8; LONGEST + 1];

/// What the thread of the console and the monitor hand each other.
pub type Desk = mayfly_desk::Desk<Asked, { LONGEST + 1 }>;

/// What is to be said next.
pub type Next = mayfly_desk::Next<Asked>;

/// A request for the monitor.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    /// What is to be done.
    pub request: Request,
    /// For a request with an answer of several lines: after which VM the next line is. VMs have numbers from 1 on.
    pub after: u64,
}
