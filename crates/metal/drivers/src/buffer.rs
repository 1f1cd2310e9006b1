//! Memory that a device reaches.

use alloc::vec::Vec;
use core::ptr::NonNull;
use core::slice;

use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE};

use crate::start::Unusable;

/// Memory that the device reaches while it has it, and that its owner reaches otherwise. It is never given back: a
/// machine's own devices are there as long as the program.
#[derive(Debug)]
pub(crate) struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a buffer is the only way to its memory.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Adds buffers of `bytes` bytes to `all`, until there are `count`.
    pub(crate) fn allocate<H: Hal>(
        all: &mut Vec<Self>,
        count: usize,
        bytes: usize,
        direction: BufferDirection,
    ) -> Result<(), Unusable> {
        all.try_reserve_exact(count).map_err(|_| Unusable::NoMemory)?;
        let pages = bytes.div_ceil(PAGE_SIZE);
        while all.len() < count {
            let (address, start) = H::dma_alloc(pages, direction);
            if address == 0 {
                return Err(Unusable::NoMemory);
            }
            for at in (0..=pages * PAGE_SIZE - bytes).step_by(bytes).take(count - all.len()) {
                // SAFETY: all of it is in what was just allocated, which is nobody else's.
                all.push(Self { start: unsafe { start.add(at) }, bytes });
            }
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: it is there for good, and the only way to its memory; it is zeroed when it is allocated.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}
