//! Memory for a guest: a mapping, apart from the VMs that it is given to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::mm::{Advice, madvise};
use vm_memory::volatile_memory::VolatileMemory;
use vm_memory::{Bytes, MmapRegion, VolatileSlice};

use crate::Error;
use crate::mapping::Mapping;

/// The smallest page of x86-64, in bytes.
const PAGE: usize = 4096;

/// A handle on a private mapping, anonymous or of a [`Snapshot`](crate::Snapshot); clones name the same mapping.
///
/// A VM holds a clone for each of its memslots, so the mapping outlives the guest's use of it. It
/// is unmapped when the last handle is dropped: a caller that times a VM's operations keeps one
/// meanwhile.
#[derive(Clone, Debug)]
pub struct GuestMemory {
    mapping: Arc<Mapping>,
}

/// Whether memory should come in pages larger than 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// `MADV_HUGEPAGE`.
    Wanted,
    /// `MADV_NOHUGEPAGE`.
    Unwanted,
}

impl GuestMemory {
    /// Maps `size` bytes of zeroes, a multiple of 4096, whose pages the kernel provides as they are
    /// touched. The mapping begins at a multiple of 2 MiB.
    ///
    /// # Errors
    /// [`Error::Call`] with `mmap`: EINVAL for a size of 0, ENOMEM.
    pub fn map(size: usize) -> Result<Self, Error> {
        Ok(Self { mapping: Arc::new(Mapping::new(size)?) })
    }

    /// Maps as [`GuestMemory::map`] does, and touches every page, so that no access of the guest
    /// makes the kernel allocate one.
    ///
    /// # Errors
    /// As [`GuestMemory::map`].
    pub fn map_populated(size: usize) -> Result<Self, Error> {
        let memory = Self::map(size)?;
        for page in (0..size).step_by(PAGE) {
            memory.write(page, &[0])?;
        }
        Ok(memory)
    }

    /// Says whether the kernel should back the mapping with huge pages: `madvise(2)`. It is free not to, and where
    /// they are switched off it does not.
    ///
    /// # Errors
    /// [`Error::Call`] with `madvise`: EINVAL where the kernel knows no huge pages.
    pub fn advise(&self, huge_pages: HugePages) -> Result<(), Error> {
        let advice = match huge_pages {
            HugePages::Wanted => Advice::LinuxHugepage,
            HugePages::Unwanted => Advice::LinuxNoHugepage,
        };
        // SAFETY: all of a mapping that lives as long as `self`; the advice changes what backs its pages, and never
        // what they hold.
        unsafe { madvise(self.region().as_ptr().cast(), self.size(), advice) }
            .map_err(Error::call("madvise"))
    }

    /// Lets the kernel merge the mapping's pages with equal ones: `madvise(2)` with `MADV_MERGEABLE`.
    ///
    /// # Errors
    /// [`Error::Call`] with `madvise`: EINVAL where the kernel has no page merger.
    pub fn let_merge(&self) -> Result<(), Error> {
        self.advise_merger(Advice::LinuxMergeable)
    }

    /// Has the kernel merge them no more, and take apart those that it has merged: `MADV_UNMERGEABLE`.
    ///
    /// # Errors
    /// [`Error::Call`] with `madvise`: EINVAL as above, ENOMEM where there is no memory for a page of its own.
    pub fn let_not_merge(&self) -> Result<(), Error> {
        self.advise_merger(Advice::LinuxUnmergeable)
    }

    fn advise_merger(&self, advice: Advice) -> Result<(), Error> {
        // SAFETY: all of a mapping that lives as long as `self`; which frames its pages share changes nothing of what
        // they hold.
        unsafe { madvise(self.region().as_ptr().cast(), self.size(), advice) }
            .map_err(Error::call("madvise"))
    }

    /// The mapping's size in bytes.
    pub fn size(&self) -> usize {
        self.region().size()
    }

    /// Copies `bytes` to `offset`. A guest running meanwhile may see a part of them.
    ///
    /// # Errors
    /// [`Error::Memory`] if they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.region()
            .as_volatile_slice()
            .write_slice(bytes, offset)
            .map_err(|_| self.outside(offset))
    }

    /// Reads the 8-byte aligned word at `offset`, in one access.
    ///
    /// # Errors
    /// [`Error::Memory`] if it is not wholly inside, or is misaligned.
    pub fn read_u64(&self, offset: usize) -> Result<u64, Error> {
        self.region()
            .as_volatile_slice()
            .load(offset, Ordering::Acquire)
            .map_err(|_| self.outside(offset))
    }

    /// The mapping's host virtual address.
    pub(crate) fn hva(&self) -> u64 {
        self.region().as_ptr() as u64
    }

    pub(crate) fn of(mapping: Arc<Mapping>) -> Self {
        Self { mapping }
    }

    pub(crate) fn slice(&self) -> VolatileSlice<'_> {
        self.region().as_volatile_slice()
    }

    fn region(&self) -> &MmapRegion {
        self.mapping.region()
    }

    fn outside(&self, offset: usize) -> Error {
        Error::Memory { offset, size: self.size() }
    }
}
