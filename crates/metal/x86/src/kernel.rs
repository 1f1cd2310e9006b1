//! What the small kernels have in common: the way in, the console, instructions that are tried, and the way out.

pub(crate) mod console;
pub(crate) mod entry;
pub(crate) mod power;
pub(crate) mod tried;
