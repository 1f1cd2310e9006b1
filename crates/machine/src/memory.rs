//! Host memory for guests: real mappings.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use mayfly_memslot::Hva;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// An anonymous mapping, zeroed, given back with the last handle to it. Handles are shared between the VMM and the
/// guests whose slots it backs, so its bytes are read and written as they might be by another thread.
#[derive(Debug)]
pub struct HostMemory {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: a plain range of memory, without ties to a thread.
unsafe impl Send for HostMemory {}
// SAFETY: shared access goes through `read_u64` and `write_u64`, which are atomic, and through guests, which are as
// well.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Maps `size` bytes, rounded up to whole pages; frames are given as they are touched.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` says: EINVAL for a size of zero, ENOMEM.
    pub fn map(size: usize) -> io::Result<Self> {
        Self::map_with(size, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    /// As [`HostMemory::map`], with every frame given at once.
    ///
    /// # Errors
    ///
    /// As [`HostMemory::map`].
    pub fn map_populated(size: usize) -> io::Result<Self> {
        Self::map_with(size, MapFlags::PRIVATE | MapFlags::POPULATE)
    }

    fn map_with(size: usize, flags: MapFlags) -> io::Result<Self> {
        let size = size
            .checked_next_multiple_of(rustix::param::page_size())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, placed where nothing is.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, flags)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, size })
    }

    /// Where it begins: page-aligned.
    pub fn hva(&self) -> Hva {
        Hva::new(self.start.as_ptr().expose_provenance() as u64)
    }

    /// Its length in bytes, in whole pages.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// The eight bytes at `offset`, as a guest may just be writing them.
    ///
    /// # Panics
    ///
    /// If `offset` is not a multiple of eight within the mapping.
    pub fn read_u64(&self, offset: u64) -> u64 {
        cell(self.at(offset)).load(Ordering::Acquire)
    }

    /// Writes eight bytes at `offset`, as a guest may just be reading them.
    ///
    /// # Panics
    ///
    /// If `offset` is not a multiple of eight within the mapping.
    pub fn write_u64(&self, offset: u64, value: u64) {
        cell(self.at(offset)).store(value, Ordering::Release);
    }

    fn at(&self, offset: u64) -> Hva {
        assert!(offset.is_multiple_of(8) && offset < self.size(), "no eight bytes at {offset:#x}");
        Hva::new(self.hva().get() + offset)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map_with`, and unmapped once. Slots that it backed are gone: see `crate::Machine`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Eight bytes of host memory at `hva`, which is aligned for them and mapped for as long as the reference is used.
pub(crate) fn cell<'a>(hva: Hva) -> &'a AtomicU64 {
    // SAFETY: callers hold the mapping (`HostMemory::at`), or are inside the SRCU section that keeps the slot
    // (`Guest::access`); both check alignment. All access to guest memory is atomic.
    unsafe { &*pointer(hva) }
}

/// A byte of host memory, otherwise as [`cell`].
pub(crate) fn byte_cell<'a>(hva: Hva) -> &'a AtomicU8 {
    // SAFETY: as in `cell`.
    unsafe { &*pointer(hva) }
}

fn pointer<T>(hva: Hva) -> *const T {
    std::ptr::with_exposed_provenance(usize::try_from(hva.get()).expect("a host address"))
}
