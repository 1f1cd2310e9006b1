//! Records a program by `ptrace` or by tracefs.

mod accounts;
mod attach;
mod book;
mod both_ends;
mod choice;
mod clock;
mod denied;
mod descriptors;
mod enter;
mod error;
mod faults;
mod follow;
mod guardian;
mod kept;
mod launch;
mod ledger;
mod limits;
mod look;
mod marker;
mod object;
mod proc;
mod program;
mod rights;
mod sampler;
mod threads;
mod tracefs;
mod usage;

pub use attach::attach;
pub use choice::{Choice, attach_by, record_by};
pub use error::Error;
pub use follow::Delay;
pub use guardian::record;
pub use launch::{Launch, Mark, Output, Recorded};
