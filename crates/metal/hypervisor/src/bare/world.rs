//! What the core asks of its platform ([`World`]), and the memory of a VM.

pub(crate) mod arm64;
mod platform;

pub(crate) mod entropy;
pub(crate) mod memory;
pub(crate) mod share;

pub(crate) use platform::{World, Worlds};
