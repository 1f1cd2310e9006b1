//! What the core asks of its platform ([`World`]), and the memory of a VM.

#[cfg(target_arch = "aarch64")]
pub(crate) mod arm64;
mod platform;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

pub(crate) mod entropy;
pub(crate) mod memory;
pub(crate) mod merger;
pub(crate) mod share;

#[cfg(target_arch = "aarch64")]
use arm64 as arch;
pub(crate) use platform::{World, Worlds};
#[cfg(target_arch = "x86_64")]
use x86 as arch;
