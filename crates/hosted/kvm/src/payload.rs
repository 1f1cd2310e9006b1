//! What the guest runs: 64-bit code of a few instructions that writes to memory and exits, pass
//! after pass.
//!
//! It never halts: with the in-kernel interrupt controller a HLT or WFI waits in the kernel and never exits.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(target_arch = "aarch64"))]
mod x86_64;

pub(crate) mod parameters;

use kvm_ioctls::{VcpuFd, VmFd};

#[cfg(target_arch = "aarch64")]
use self::aarch64 as guest;
#[cfg(not(target_arch = "aarch64"))]
use self::x86_64 as guest;
use crate::{Error, Exit, GuestMemory, Payload};

impl Payload {
    /// The first guest physical address that page tables and code leave free: `touch` starts here
    /// or above.
    pub const FREE: u64 = guest::FREE;

    /// The first address that no guest reaches: 64 GiB; on arm64, 63 GiB.
    pub const REACH: u64 = guest::REACH;

    /// Writes the page tables and the code into `memory`, which is to be the guest's memory at gpa
    /// 0, and has at least [`Payload::FREE`] bytes. Once for all vCPUs: they differ in registers
    /// alone.
    ///
    /// # Errors
    /// [`Error::Memory`] if the memory is too small.
    pub fn install(memory: &GuestMemory) -> Result<(), Error> {
        guest::install(memory)
    }

    /// Puts the vCPU at this payload's first instruction.
    pub(crate) fn enter(&self, vcpu: &VcpuFd, vm: &VmFd) -> Result<(), Error> {
        guest::enter(vcpu, vm, self)
    }

    /// What a guest's write of four bytes is that nothing in the kernel has taken.
    pub(crate) fn written(gpa: u64, value: u32) -> Result<Exit, Error> {
        guest::written(gpa, value)
    }
}
