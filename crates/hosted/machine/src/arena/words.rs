//! Words of memory that take no room before they are touched. All unsafe code of the arena is here.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, AtomicU64};

use mayfly_platform::address::{Hpa, Pfn};
use mayfly_platform::frames::WORDS;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Bytes of a word.
const WORD: usize = size_of::<AtomicU64>();

/// A mapping of so many words, zeroed.
#[derive(Debug)]
pub(crate) struct Words {
    base: NonNull<AtomicU64>,
    count: usize,
    /// What holds them, if that is a file of their own.
    file: Option<OwnedFd>,
}

// SAFETY: a plain range of memory, without ties to a thread.
unsafe impl Send for Words {}
// SAFETY: shared access is to atomics only.
unsafe impl Sync for Words {}

impl Words {
    /// Words whose room can be given back ([`Words::clear`]): a file in memory (`memfd_create(2)`), which is not
    /// counted against what the host has before it is touched.
    pub(super) fn in_a_file(count: usize) -> io::Result<Self> {
        let bytes = bytes(count)?;
        let file = memfd_create("mayfly-arena", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes as u64)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping, placed where nothing is.
        let base = unsafe { mmap(null_mut(), bytes, ACCESS, flags, &file, 0)? };
        Self::new(base.cast(), count, Some(file))
    }

    /// Words to keep books in.
    pub(super) fn anonymous(count: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, placed where nothing is.
        let base = unsafe { mmap_anonymous(null_mut(), bytes(count)?, ACCESS, flags)? };
        Self::new(base.cast(), count, None)
    }

    fn new(base: *mut AtomicU64, count: usize, file: Option<OwnedFd>) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, count, file })
    }

    /// Where the first is.
    pub(super) fn base(&self) -> NonNull<AtomicU64> {
        self.base
    }

    /// The word with this number; panics where there is none.
    #[inline]
    pub(super) fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < self.count, "no word {number:#x}");
        // SAFETY: within the mapping, which lives as long as `self`; any bytes are a valid integer, and everybody else
        // accesses them as atomics as well.
        unsafe { self.base.add(number).as_ref() }
    }

    /// The byte with this number; panics where there is none. Whoever mixes accesses to a byte and to its word gets
    /// what the processor gives, as a guest does.
    #[inline]
    pub(super) fn byte(&self, number: usize) -> &AtomicU8 {
        assert!(number < self.count * WORD, "no byte {number:#x}");
        // SAFETY: as in `word`.
        unsafe { self.base.cast::<AtomicU8>().add(number).as_ref() }
    }

    /// The eight bytes at `hpa`, where the first word is that of address 0; panics where that is no multiple of eight, or
    /// not in here.
    #[inline]
    pub(crate) fn at(&self, hpa: Hpa) -> &AtomicU64 {
        assert!(hpa.get().is_multiple_of(8), "{hpa} is not a multiple of eight");
        self.word((hpa.get() / 8) as usize)
    }

    /// The words of a frame; panics where it is not in here.
    pub(crate) fn of(&self, frame: Pfn) -> impl Iterator<Item = &AtomicU64> {
        let first = frame.get() as usize * WORDS;
        (first..first + WORDS).map(|word| self.word(word))
    }

    /// Makes these words zero by giving back the whole host pages that they are.
    pub(super) fn clear(&self, first: usize, count: usize) {
        let Some(file) = &self.file else { return };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, flags, (first * WORD) as u64, (count * WORD) as u64)
            .expect("a file in memory can have holes");
    }

    /// Bytes of the file that take room.
    pub(super) fn resident(&self) -> io::Result<u64> {
        let Some(file) = &self.file else { return Ok(0) };
        // In units of 512 bytes: stat(3type).
        Ok(fstat(file)?.st_blocks.cast_unsigned() * 512)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: mapped in a constructor, unmapped once; whoever had a reference borrowed `self`, and holders of the
        // base have been told.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.count * WORD) };
        debug_assert!(unmapped.is_ok());
    }
}

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn bytes(count: usize) -> io::Result<usize> {
    Ok(count.checked_mul(WORD).ok_or(io::ErrorKind::OutOfMemory)?)
}
