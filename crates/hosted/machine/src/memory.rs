//! Host memory for guests.

use std::ops::Range;
use std::sync::Arc;

use mayfly_memslot::{Flags, Gpa, Hva, Region, SlotId};

use crate::HostSpace;
use crate::address_space::{Backing, Error, Image, Protection};

/// A mapping in the host's address space, zeroed, unmapped with this handle. Its bytes are read and written as they
/// might be by another thread, since guests do the same.
#[derive(Debug)]
pub struct HostMemory {
    space: Arc<HostSpace>,
    start: Hva,
    size: u64,
}

impl HostMemory {
    /// Maps `size` bytes in `space`, rounded up to whole pages of the backing.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::mmap`].
    pub fn map(space: &Arc<HostSpace>, size: u64, backing: Backing) -> Result<Self, Error> {
        let start = space.mmap(size, backing, Protection::ReadWrite)?;
        let size = size.next_multiple_of(backing.unit());
        Ok(Self { space: Arc::clone(space), start, size })
    }

    /// Maps memory in `space` that begins as `image`.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::map_image`].
    pub fn map_image(space: &Arc<HostSpace>, image: &Arc<Image>) -> Result<Self, Error> {
        let start = space.map_image(image, Protection::ReadWrite)?;
        Ok(Self { space: Arc::clone(space), start, size: image.size() })
    }

    /// How many of its pages have a frame of their own: [`HostSpace::own_pages`].
    ///
    /// # Errors
    ///
    /// As [`HostSpace::own_pages`].
    pub fn own_pages(&self) -> Result<u64, Error> {
        self.space.own_pages(self.hvas())
    }

    /// Makes an image of what it holds, as which it goes on: [`HostSpace::freeze`].
    ///
    /// # Errors
    ///
    /// As [`HostSpace::freeze`].
    pub fn freeze(&self) -> Result<Arc<Image>, Error> {
        self.space.freeze(self.hvas())
    }

    /// Gives up what was written to it: [`HostSpace::discard`].
    ///
    /// # Errors
    ///
    /// As [`HostSpace::discard`].
    pub fn discard(&self) -> Result<u64, Error> {
        self.space.discard(self.hvas())
    }

    /// Where it begins: page-aligned.
    pub fn hva(&self) -> Hva {
        self.start
    }

    /// Its length in bytes, in whole pages.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its addresses.
    pub fn hvas(&self) -> Range<Hva> {
        self.start..Hva::new(self.start.get() + self.size)
    }

    /// All of it as a memslot from `gpa` on, without flags.
    pub fn region(&self, slot: SlotId, gpa: Gpa) -> Region<Hva> {
        Region { slot, flags: Flags::empty(), gpa, size: self.size, backing: self.start }
    }

    /// The eight bytes at `offset`, as a guest may just be writing them.
    ///
    /// # Panics
    ///
    /// If `offset` is not a multiple of eight within the mapping, or the host has no frame left.
    pub fn read_u64(&self, offset: u64) -> u64 {
        self.space.read_u64(self.at(offset)).expect("it is mapped, and there is a frame")
    }

    /// Writes eight bytes at `offset`, as a guest may just be reading them.
    ///
    /// # Panics
    ///
    /// As [`HostMemory::read_u64`]; or if the mapping has been made read-only.
    pub fn write_u64(&self, offset: u64, value: u64) {
        self.space.write_u64(self.at(offset), value).expect("it is mapped, and there is a frame");
    }

    fn at(&self, offset: u64) -> Hva {
        assert!(offset.is_multiple_of(8) && offset < self.size, "no eight bytes at {offset:#x}");
        Hva::new(self.start.get() + offset)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let unmapped = self.space.munmap(self.hvas());
        debug_assert!(unmapped.is_ok());
    }
}
