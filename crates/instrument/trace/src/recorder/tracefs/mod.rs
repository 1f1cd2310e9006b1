//! Records by tracefs: nothing is stopped.
//!
//! An instance of our own has the events of the threads that are followed, and of those that they make (`event-fork`): the
//! beginnings and ends of the system calls that matter, signals, executions, what the scheduler does with them, and when a
//! vCPU is entered. They are read as pages of the ring buffer, put in the order of their times, and told to the same
//! follower that `ptrace` tells its stops.
//!
//! The kernel forgets a thread as soon as it begins to end, so how that goes on would not be seen; a second instance has
//! the moments at which any thread of the host leaves its processor for good.
//!
//! Events have numbers. What lies behind a pointer is read from the program's memory when the event is; where the call had
//! ended by then it may be another's, and is left out.

mod event;
mod format;
mod page;
mod place;
mod reader;
mod run;
mod told;
mod uprobe;

pub(super) use run::{attach, record};
pub(super) use uprobe::Uprobe;

/// Takes away instances whose maker is gone.
pub(super) fn clean() {
    if let Ok(place) = place::Place::find() {
        place.clean();
    }
}
