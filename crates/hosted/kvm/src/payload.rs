//! What the guest runs: 64-bit code of a few instructions that writes to memory and exits, pass
//! after pass.
//!
//! It never halts: with the in-kernel interrupt controller a HLT or WFI waits in the kernel and never exits.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(target_arch = "aarch64"))]
mod x86_64;

use std::ops::Range;

use kvm_ioctls::{VcpuFd, VmFd};

#[cfg(target_arch = "aarch64")]
use self::aarch64 as guest;
#[cfg(not(target_arch = "aarch64"))]
use self::x86_64 as guest;
use crate::{Error, Exit, GuestMemory};

/// Parameters of the guest's code.
///
/// Each pass writes the pass's number, from 1, as 8 bytes at the start of each 4096 bytes of
/// `touch`; then, with a `doorbell`, as 4 bytes to that address; then, as 4 bytes, to `port`.
///
/// The guest's virtual addresses are its physical ones. They end with the memory that the code was installed in,
/// rounded up to whole GiB; at 4 GiB at least, and at [`Payload::REACH`] at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The guest physical range to write to. May be empty.
    pub touch: Range<u64>,
    /// A guest physical address without memory behind it: an MMIO exit
    /// ([`crate::Exit::MmioWrite`]), unless an ioeventfd takes it.
    pub doorbell: Option<u64>,
    /// The I/O port that ends the pass ([`crate::Exit::PortWrite`]). Not one of the in-kernel
    /// PIC's: 0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1. On arm64, where ports are a window of addresses, a multiple of 4.
    pub port: u16,
}

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
