//! What knows the architecture: the header of a kernel, and the machine of a guest. Another architecture has its own.

pub mod image;
pub mod layout;
pub mod part;
pub mod state;
