//! The memory of one VM, whose blocks of 2 MiB get frames when they are first touched.
//!
//! A page's address is its distance from the beginning of the VM's memory. For each block there is a word, which is zero or
//! the address of its frames. It is written once, under a lock, after its frames are zeroed. The write is a release, and
//! pairs with the acquire of whoever reads the word. Frames stay until the memory is dropped. It is dropped when no vCPU can
//! reach it and no TLB holds a translation to it.

use alloc::vec::Vec;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_vm::memslot::Hva;
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::stage2::{Level, Permissions};
use mayfly_vm::{HostFault, HostMemory, Resolved};
use mayfly_x86::guest::walk::Memory;

use super::{copy, frames};
use crate::program::processor::lock::SpinLock;

const BLOCK_SHIFT: u32 = 21;
const BLOCK_BYTES: u64 = 1 << BLOCK_SHIFT;
const BLOCK_ORDER: u32 = BLOCK_SHIFT - PAGE_SHIFT;

/// The memory of one VM.
pub(crate) struct GuestMemory {
    blocks: Vec<AtomicU64>,
    giving: SpinLock<()>,
}

impl GuestMemory {
    /// Memory of `bytes` bytes, rounded up to 2 MiB. None of it has a frame yet.
    pub(crate) fn try_new(bytes: u64) -> Result<Self, OutOfMemory> {
        let mut blocks = Vec::new();
        let count = bytes.div_ceil(BLOCK_BYTES) as usize;
        blocks.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
        blocks.resize_with(count, || AtomicU64::new(0));
        Ok(Self { blocks, giving: SpinLock::new(()) })
    }

    /// Where the byte at `address` is in the machine's memory; its block is given frames if it has none.
    fn place(&self, address: u64) -> Result<u64, HostFault> {
        let block =
            self.blocks.get((address >> BLOCK_SHIFT) as usize).ok_or(HostFault::NotMapped)?;
        let inner = address % BLOCK_BYTES;
        let given = block.load(Ordering::Acquire);
        if given != 0 {
            return Ok(given + inner);
        }
        let _giving = self.giving.lock();
        let given = block.load(Ordering::Acquire);
        if given != 0 {
            return Ok(given + inner);
        }
        let first = frames::take(BLOCK_ORDER).ok_or(HostFault::OutOfMemory)?;
        block.store(first.get() << PAGE_SHIFT, Ordering::Release);
        Ok((first.get() << PAGE_SHIFT) + inner)
    }

    /// Calls `part` with each part of `length` bytes from `address` on that lies in one block: where it is in the machine's
    /// memory, and which of the bytes they are.
    fn parts(
        &self,
        address: u64,
        length: usize,
        mut part: impl FnMut(u64, core::ops::Range<usize>),
    ) -> Result<(), HostFault> {
        let mut done = 0;
        while done < length {
            let at = address.checked_add(done as u64).ok_or(HostFault::NotMapped)?;
            let here = (length - done).min((BLOCK_BYTES - at % BLOCK_BYTES) as usize);
            part(self.place(at)?, done..done + here);
            done += here;
        }
        Ok(())
    }

    /// Writes bytes to it, which the guest may be using.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), HostFault> {
        self.parts(address, bytes.len(), |at, part| {
            // SAFETY: the frames are this memory's, and last as long as it.
            unsafe { copy::write(at, &bytes[part]) }
        })
    }

    /// Reads bytes from it.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), HostFault> {
        let length = bytes.len();
        self.parts(address, length, |at, part| {
            // SAFETY: as above.
            unsafe { copy::read(at, &mut bytes[part]) }
        })
    }

    /// The 16 bytes at `address`, all of which are in one page.
    pub(crate) fn sixteen(&self, address: u64) -> Result<[u8; 16], HostFault> {
        debug_assert!(address % PAGE_SIZE <= PAGE_SIZE - 16, "the bytes are in two pages");
        let place = self.place(address)?;
        // SAFETY: as above; they are in one block.
        Ok(unsafe { copy::sixteen(place) })
    }

    /// Frames that it has.
    pub(crate) fn frames(&self) -> u64 {
        let given = self.blocks.iter().filter(|block| block.load(Ordering::Relaxed) != 0).count();
        given as u64 * (BLOCK_BYTES / PAGE_SIZE)
    }
}

impl Memory for GuestMemory {
    fn word(&self, address: u64) -> Option<u64> {
        let at = with_exposed_provenance::<AtomicU64>(self.place(address & !7).ok()? as usize);
        // SAFETY: the frames are this memory's, and last as long as it; what the guest writes there is a word, too.
        Some(unsafe { &*at }.load(Ordering::Relaxed))
    }
}

// SAFETY: frames that are this memory's alone, by blocks as they were given, and stay so until it goes: which is when the
// VM's tables have been reclaimed, so that neither a vCPU nor a TLB reaches them.
unsafe impl HostMemory<Hva> for GuestMemory {
    fn resolve(&self, backing: Hva, _wanted: Permissions) -> Result<Resolved, HostFault> {
        let place = self.place(backing.get())?;
        Ok(Resolved::memory(Pfn::new(place >> PAGE_SHIFT), Level::MIB2, true))
    }

    fn linear_map(&self) -> *const mayfly_vm::platform::sync::AtomicU64 {
        core::ptr::with_exposed_provenance(0)
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        for block in &mut self.blocks {
            let first = *block.get_mut() >> PAGE_SHIFT;
            if first != 0 {
                // SAFETY: they were given for that order, and nothing uses them: see above.
                unsafe { frames::put(Pfn::new(first), BLOCK_ORDER) };
            }
        }
    }
}
