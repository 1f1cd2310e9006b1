//! The memory of a guest that runs no more, from which others begin: a file in memory (`memfd_create(2)`).
//!
//! There are several ways to give a guest such memory. What each of them costs is up to the kernel; each is one method, and
//! what is read afterwards is the same.

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, madvise};
use vm_memory::volatile_memory::VolatileMemory;
use vm_memory::{Bytes, VolatileSlice};

use crate::mapping::{Mapping, Sharing};
use crate::{Error, GuestMemory};

const PAGE: u64 = 4096;

/// Bytes of an entry of `/proc/self/pagemap`, and bits of it (Documentation/admin-guide/mm/pagemap.rst).
const ENTRY: usize = 8;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Or shared.
const OF_A_FILE: u64 = 1 << 61;

/// What a guest's memory was.
#[derive(Debug)]
pub struct Snapshot {
    file: OwnedFd,
    /// The file. Nothing is written to it once this is used.
    pages: Mapping,
}

impl Snapshot {
    /// Takes what `memory` is. No guest runs in it meanwhile.
    ///
    /// # Errors
    /// [`Error::Call`] with `memfd_create`, `ftruncate` or `mmap`: ENOMEM.
    pub fn take(memory: &GuestMemory) -> Result<Self, Error> {
        let snapshot = Self::of_zeroes(memory.size())?;
        copy(memory.slice(), snapshot.pages.region().as_volatile_slice())?;
        Ok(snapshot)
    }

    /// Memory of `size` bytes of zeroes, a multiple of 4096, for a guest; and the snapshot that it becomes without a copy when
    /// the guest runs no more and nothing else writes to it. The snapshot is used from then on.
    ///
    /// # Errors
    /// As [`Snapshot::take`], and EINVAL for a size of 0.
    pub fn to_come(size: usize) -> Result<(Self, GuestMemory), Error> {
        let snapshot = Self::of_zeroes(size)?;
        let memory = Mapping::of_file(&snapshot.file, size, Sharing::Shared)?;
        Ok((snapshot, GuestMemory::of(Arc::new(memory))))
    }

    fn of_zeroes(size: usize) -> Result<Self, Error> {
        let file =
            memfd_create("snapshot", MemfdFlags::CLOEXEC).map_err(Error::call("memfd_create"))?;
        ftruncate(&file, size as u64).map_err(Error::call("ftruncate"))?;
        let pages = Mapping::of_file(&file, size, Sharing::Shared)?;
        Ok(Self { file, pages })
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.pages.region().size()
    }

    /// Memory of its own, to which all of it is copied.
    ///
    /// # Errors
    /// As [`GuestMemory::map`].
    pub fn copied(&self) -> Result<GuestMemory, Error> {
        let memory = GuestMemory::map(self.size())?;
        self.copy_to(&memory)?;
        Ok(memory)
    }

    /// Copies all of it to `memory`, of the same size.
    ///
    /// # Errors
    /// [`Error::Memory`] if that is smaller.
    pub fn copy_to(&self, memory: &GuestMemory) -> Result<(), Error> {
        copy(self.pages.region().as_volatile_slice(), memory.slice())
    }

    /// The same file, mapped once more (`MAP_PRIVATE`): a page is the file's until it is written, and gets a frame of its own
    /// then.
    ///
    /// # Errors
    /// [`Error::Call`] with `mmap`.
    pub fn mapped(&self) -> Result<GuestMemory, Error> {
        let mapping = Mapping::of_file(&self.file, self.size(), Sharing::Private)?;
        Ok(GuestMemory::of(Arc::new(mapping)))
    }

    /// The 8-byte aligned word at `offset`.
    ///
    /// # Errors
    /// [`Error::Memory`] if it is not wholly inside, or is misaligned.
    pub fn read_u64(&self, offset: usize) -> Result<u64, Error> {
        let slice = self.pages.region().as_volatile_slice();
        let outside = |_| Error::Memory { offset, size: self.size() };
        slice.load(offset, std::sync::atomic::Ordering::Acquire).map_err(outside)
    }

    /// Where `bytes` bytes from `offset` on are, which the kernel reads as long as this is there.
    pub(crate) fn address(&self, offset: usize, bytes: usize) -> Result<u64, Error> {
        let slice = self.pages.region().as_volatile_slice();
        let outside = |_| Error::Memory { offset, size: self.size() };
        let part = slice.subslice(offset, bytes).map_err(outside)?;
        Ok(part.ptr_guard().as_ptr() as u64)
    }
}

impl GuestMemory {
    /// Gives back all that was written to it: `MADV_DONTNEED`. What was [mapped](Snapshot::mapped) of a snapshot is the
    /// snapshot's again when it is next touched; other memory is zeroes, or what [serves](crate::Userfault) its faults gives.
    ///
    /// # Errors
    /// [`Error::Call`] with `madvise`.
    pub fn give_back(&self) -> Result<(), Error> {
        // SAFETY: all of a mapping that lives as long as `self`. Its bytes are accessed by volatile slices alone, which
        // expect them to change.
        unsafe { madvise(self.hva() as *mut _, self.size(), Advice::LinuxDontNeed) }
            .map_err(Error::call("madvise"))
    }

    /// Has the pages of `bytes` be there as after a write to each, which leaves what they hold: `MADV_POPULATE_WRITE`.
    ///
    /// # Errors
    /// [`Error::Call`] with `madvise`: EINVAL before Linux v5.14, or where they are not whole pages; [`Error::Memory`] if they
    /// are not inside.
    pub fn populate(&self, bytes: Range<usize>) -> Result<(), Error> {
        let slice = self.slice();
        let outside = |_| Error::Memory { offset: bytes.start, size: self.size() };
        let part = slice.subslice(bytes.start, bytes.len()).map_err(outside)?;
        // SAFETY: a part of a mapping that lives as long as `self`; what its bytes are stays.
        unsafe {
            madvise(part.ptr_guard_mut().as_ptr().cast(), part.len(), Advice::LinuxPopulateWrite)
        }
        .map_err(Error::call("madvise"))
    }

    /// Bytes of it that are in frames of its own, as `/proc/self/pagemap` says. (`smaps` does not: the kernel has mappings
    /// that lie side by side as one.)
    ///
    /// # Errors
    /// [`Error::Call`] with `pagemap`, if that cannot be read.
    pub fn own_bytes(&self) -> Result<u64, Error> {
        let file = File::open("/proc/self/pagemap").map_err(Error::io("pagemap"))?;
        let (first, pages) = (self.hva() / PAGE, self.size() as u64 / PAGE);
        let mut entries = vec![0; pages as usize * ENTRY];
        file.read_exact_at(&mut entries, first * ENTRY as u64).map_err(Error::io("pagemap"))?;
        let is_own = |entry: &[u8; ENTRY]| {
            let entry = u64::from_le_bytes(*entry);
            entry & (PRESENT | SWAPPED) != 0 && entry & OF_A_FILE == 0
        };
        Ok(entries.as_chunks().0.iter().filter(|entry| is_own(entry)).count() as u64 * PAGE)
    }
}

fn copy(from: VolatileSlice<'_>, to: VolatileSlice<'_>) -> Result<(), Error> {
    if to.len() < from.len() {
        return Err(Error::Memory { offset: to.len(), size: to.len() });
    }
    from.copy_to_volatile_slice(to);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;
    const SIZE: usize = 64 * PAGE;

    fn numbered() -> GuestMemory {
        let memory = GuestMemory::map(SIZE).unwrap();
        for offset in (0..SIZE).step_by(PAGE) {
            memory.write(offset, &(offset as u64 + 7).to_le_bytes()).unwrap();
        }
        memory
    }

    #[test]
    fn memory_that_begins_as_a_snapshot_has_its_contents_and_keeps_what_is_written() {
        let snapshot = Snapshot::take(&numbered()).unwrap();
        assert_eq!(snapshot.size(), SIZE);
        for memory in [snapshot.copied().unwrap(), snapshot.mapped().unwrap()] {
            memory.write(3 * PAGE, &1_u64.to_le_bytes()).unwrap();
            for offset in (0..SIZE).step_by(PAGE) {
                let own = if offset == 3 * PAGE { 1 } else { offset as u64 + 7 };
                assert_eq!(memory.read_u64(offset).unwrap(), own, "{offset:#x}");
                assert_eq!(snapshot.read_u64(offset).unwrap(), offset as u64 + 7, "of the image");
            }
        }
    }

    #[test]
    fn memory_that_is_to_become_a_snapshot_is_one_without_a_copy() {
        let (snapshot, memory) = Snapshot::to_come(SIZE).unwrap();
        memory.write(5 * PAGE, &7_u64.to_le_bytes()).unwrap();
        drop(memory);
        let fork = snapshot.mapped().unwrap();
        fork.write(6 * PAGE, &8_u64.to_le_bytes()).unwrap();
        assert_eq!(fork.read_u64(5 * PAGE).unwrap(), 7);
        assert_eq!([5, 6].map(|page| snapshot.read_u64(page * PAGE).unwrap()), [7, 0]);
        assert!(matches!(Snapshot::to_come(0), Err(Error::Call { call: "mmap", .. })));
    }

    #[test]
    fn what_is_given_back_is_the_snapshots_again() {
        let snapshot = Snapshot::take(&numbered()).unwrap();
        let memory = snapshot.mapped().unwrap();
        assert_eq!(memory.own_bytes().unwrap(), 0);
        memory.write(5 * PAGE, &[1; 8]).unwrap();
        memory.populate(7 * PAGE..9 * PAGE).unwrap();
        assert_eq!(memory.own_bytes().unwrap(), 3 * PAGE as u64);
        assert_eq!(memory.read_u64(8 * PAGE).unwrap(), 8 * PAGE as u64 + 7);
        memory.give_back().unwrap();
        assert_eq!(memory.own_bytes().unwrap(), 0);
        assert_eq!(memory.read_u64(5 * PAGE).unwrap(), 5 * PAGE as u64 + 7);
    }

    #[test]
    fn what_is_outside_is_refused() {
        let snapshot = Snapshot::take(&numbered()).unwrap();
        assert!(matches!(snapshot.read_u64(SIZE), Err(Error::Memory { .. })));
        assert!(snapshot.address(SIZE - PAGE, 2 * PAGE).is_err());
        let memory = snapshot.mapped().unwrap();
        assert!(matches!(memory.populate(SIZE - PAGE..SIZE + PAGE), Err(Error::Memory { .. })));
        assert!(matches!(memory.populate(1..PAGE), Err(Error::Call { call: "madvise", .. })));
        let small = GuestMemory::map(PAGE).unwrap();
        assert!(matches!(snapshot.copy_to(&small), Err(Error::Memory { .. })));
    }

    #[test]
    fn memory_beside_other_memory_of_its_kind_has_frames_of_its_own() {
        let snapshot = Snapshot::take(&numbered()).unwrap();
        let copies: Vec<_> = (0..4).map(|_| snapshot.copied().unwrap()).collect();
        assert!(copies.iter().all(|copy| copy.own_bytes().unwrap() == SIZE as u64));
        let untouched = GuestMemory::map(SIZE).unwrap();
        assert_eq!(untouched.own_bytes().unwrap(), 0);
    }
}
