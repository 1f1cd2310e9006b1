//! A mapping. One of memory begins where a huge page may.

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use vm_memory::MmapRegion;

use crate::Error;

/// Where huge pages begin, of x86-64 and of arm64 with pages of 4 KiB: at multiples of 2 MiB. Linux places no mapping so
/// by itself before v6.7, and gives the first and the last part of one that is not placed so small pages.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Whether what is written to a mapping of a file is written to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Shared,
    /// A page that is written becomes the mapping's own.
    Private,
}

/// Memory of zeroes, of which the kernel provides pages as they are touched; or of a file.
#[derive(Debug)]
pub(crate) struct Mapping {
    region: MmapRegion,
    start: NonNull<c_void>,
}

// SAFETY: `start` is only where the mapping begins, which is this value's alone to unmap, on whichever thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared, nothing is done with `start` but to tell it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `size` bytes, a multiple of 4096, from a multiple of [`HUGE_PAGE`] on.
    pub(crate) fn new(size: usize) -> Result<Self, Error> {
        let invalid = || Error::call("mmap")(Errno::INVAL);
        if size == 0 || !size.is_multiple_of(4096) {
            return Err(invalid());
        }
        let most = size.checked_add(HUGE_PAGE).ok_or_else(invalid)?;
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses where, and nothing else is there.
        let wide = unsafe { mmap_anonymous(null_mut(), most, prot, flags) }
            .map_err(Error::call("mmap"))?;
        let before = wide.addr().next_multiple_of(HUGE_PAGE) - wide.addr();
        let start = wide.wrapping_byte_add(before);
        let parts = [(wide, before), (start.wrapping_byte_add(size), HUGE_PAGE - before)];
        for (part, bytes) in parts.into_iter().filter(|(_, bytes)| *bytes > 0) {
            // SAFETY: what was mapped too much, before and behind, of which no other code knows yet.
            unsafe { munmap(part, bytes) }.map_err(Error::call("munmap"))?;
        }
        Self::at(start, size, prot, flags)
    }

    /// Maps the first `size` bytes of a file, a multiple of 4096, wherever the kernel places them: the pages of such a file
    /// are small, so that nothing is gained where huge ones may begin.
    pub(crate) fn of_file(file: &OwnedFd, size: usize, sharing: Sharing) -> Result<Self, Error> {
        let flags = match sharing {
            Sharing::Shared => MapFlags::SHARED,
            Sharing::Private => MapFlags::PRIVATE | MapFlags::NORESERVE,
        };
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses where, and nothing else is there.
        let start =
            unsafe { mmap(null_mut(), size, prot, flags, file, 0) }.map_err(Error::call("mmap"))?;
        Self::at(start, size, prot, flags)
    }

    /// What was just mapped, of which no other code knows yet.
    fn at(
        start: *mut c_void,
        size: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Error> {
        let invalid = || Error::call("mmap")(Errno::INVAL);
        let (prot, flags) = (prot.bits().cast_signed(), flags.bits().cast_signed());
        // SAFETY: `size` bytes from `start` on are mapped so, until `Drop` of what is made here.
        let region = unsafe { MmapRegion::build_raw(start.cast(), size, prot, flags) }
            .map_err(|_| invalid())?;
        Ok(Self { region, start: NonNull::new(start).ok_or_else(invalid)? })
    }

    /// The memory, for accesses.
    pub(crate) fn region(&self) -> &MmapRegion {
        &self.region
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: all of the mapping, to which nothing refers any more: `region` does not outlive this, and is not
        // used from here on.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.region.size()) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapping_begins_where_a_huge_page_may() {
        // Kept, so that each is placed beside the others; a page more than a multiple brings them out of step.
        let mappings: Vec<_> =
            (1..20).map(|pages| Mapping::new(HUGE_PAGE + pages * 4096).unwrap()).collect();
        for mapping in &mappings {
            assert!(mapping.start.addr().get().is_multiple_of(HUGE_PAGE), "{mapping:?}");
        }
    }

    #[test]
    fn what_was_mapped_too_much_is_given_back() {
        let size = 64 * HUGE_PAGE;
        let mapping = Mapping::new(size).unwrap();
        let start = mapping.start.addr().get();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of = |line: &str| {
            let (from, rest) = line.split_once('-')?;
            let to = rest.split_once(' ')?.0;
            let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).ok());
            Some((from?, to?))
        };
        // The kernel joins neighbours: no less than this is mapped there, and all of it is.
        assert!(maps.lines().filter_map(of).any(|(from, to)| from <= start && to >= start + size));
        drop(mapping);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_there = |(from, to): (usize, usize)| from < start + size && to > start;
        // Other tests may map something there meanwhile, but nothing as large.
        let left = maps.lines().filter_map(of).filter(|range| is_there(*range));
        assert!(left.map(|(from, to)| to - from).all(|bytes| bytes < size));
    }

    #[test]
    fn sizes_that_are_no_pages_or_too_many_are_refused() {
        for size in [0, 1, 4095, usize::MAX, usize::MAX - 4095] {
            assert!(matches!(Mapping::new(size), Err(Error::Call { call: "mmap", .. })), "{size}");
        }
    }
}
