//! How this program is started, and how it starts a Linux: what is read and written in memory, as data.

pub mod archive;
pub mod bzimage;
pub mod hvm;
pub mod parameters;
pub mod processors;
