//! Memory that may be refused.
//!
//! `Box::new` and `Arc::new` abort if no memory is left. The core returns an error instead and stays as it was.

mod boxed;
mod kept;
mod shared;

pub use boxed::{OutOfMemory, try_box, try_box_with};
pub use kept::{Attic, Handle, Kept};
pub use shared::Shared;
