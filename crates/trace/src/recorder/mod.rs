//! Records by `ptrace`.

mod attach;
mod book;
mod clock;
mod denied;
mod descriptors;
mod enter;
mod follow;
mod guardian;
mod rights;
mod sampler;
mod threads;
mod usage;

pub use attach::attach;
pub use follow::Delay;
pub use guardian::{Error, Launch, Output, Recorded, record};
