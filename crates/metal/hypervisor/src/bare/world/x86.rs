//! TLBs, caches and copies on x86-64.

use mayfly_hypervisor::in_use::Moment;
use mayfly_shootdown::guests::Of;
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::cache::{Cache, CacheCapabilities, InstructionCaches};
use mayfly_vm::platform::tlb::{Scope, Tlb, TlbToken, Vmid};
pub(super) use mayfly_x86::bare::copy;

use mayfly_vm::HostFault;

use super::memory::GuestMemory;
use super::platform::World;
use crate::bare::processor::in_use;
use crate::bare::processor::this_cpu::invalidate;
use crate::bare::threads::interrupts::look;

/// The number of this machine's TLBs.
pub(crate) const MACHINE: usize = 1;

// SAFETY: an invalidation is complete when `issue` returns: no CPU is in a guest under that VMID that has not flushed since.
unsafe impl Tlb for World {
    /// Worlds differ in the share that frames are taken of; the machine is one.
    fn tlbs(&self) -> usize {
        MACHINE
    }

    fn issue(&self, vmid: Vmid, _scope: Scope) -> TlbToken {
        invalidate(Of::Vmid(vmid));
        // It may have waited for others.
        look();
        TlbToken(0)
    }

    /// Everything is flushed, however much is asked.
    fn max_by_address(&self) -> u64 {
        0
    }

    fn complete(&self, _token: TlbToken) {}

    fn invalidate_all_vmids(&self) {
        invalidate(Of::All);
    }
}

impl World {
    /// Guests read nothing past the caches, which are coherent.
    pub(crate) fn clean_bytes(_start: u64, _bytes: u64) {}
}

// SAFETY: caches of this architecture are coherent for guests (`Format::COHERENT`).
unsafe impl Cache for World {
    fn capabilities(&self) -> CacheCapabilities {
        CacheCapabilities { instructions: InstructionCaches::Coherent, ..Default::default() }
    }

    fn clean(&self, _first: Pfn, _count: u64) {}

    fn clean_invalidate(&self, _first: Pfn, _count: u64) {}

    fn invalidate_instructions(&self, _first: Pfn, _count: u64) {}

    fn invalidate_all_instructions(&self) {}
}

impl GuestMemory {
    /// The bytes at `address`, all of which are in one page, for a caller that has a lock. Zeroes, where the page was never
    /// touched.
    #[inline]
    pub(crate) fn few<const BYTES: usize>(&self, address: u64) -> Result<[u8; BYTES], HostFault> {
        let mut bytes = [0; BYTES];
        // SAFETY: the frame is this memory's meanwhile.
        let read = Self::with_frame(self.word_of(address)?, address, |at| unsafe {
            copy::read(at, &mut bytes);
        });
        if read.is_err() {
            self.read_now(address, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// For a caller that reads a few words, one after the other, and has a lock: it neither waits nor uses the memory otherwise
    /// as long as this exists.
    #[inline]
    pub(crate) fn glance(&self) -> Glance<'_> {
        Glance { memory: self, _using: in_use::begin() }
    }
}

/// A memory of which frames are used for a moment. Pages that have none of their own are not seen.
pub(crate) struct Glance<'a> {
    memory: &'a GuestMemory,
    _using: Moment<'static>,
}

impl Glance<'_> {
    /// The bytes at `address`, all of which are in one page.
    #[inline]
    pub(crate) fn few<const BYTES: usize>(&self, address: u64) -> Option<[u8; BYTES]> {
        let at = GuestMemory::place(self.memory.word_of(address).ok()?, address)?;
        let mut bytes = [0; BYTES];
        // SAFETY: the frame is this memory's until this is dropped.
        unsafe { copy::read(at, &mut bytes) };
        Some(bytes)
    }
}
