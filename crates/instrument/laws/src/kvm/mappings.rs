//! Many mappings of this process.

use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;

/// So many mappings beside each other, each of one page that nobody touches. Neighbours differ in what they allow, so
/// the kernel joins none.
pub(super) struct Mappings {
    start: *mut core::ffi::c_void,
    bytes: usize,
}

impl Mappings {
    /// # Errors
    /// ENOMEM: there are more than `vm.max_map_count`, or no address space is left.
    pub(super) fn new(count: u64) -> Result<Self, Errno> {
        let bytes = count as usize * PAGE;
        if bytes == 0 {
            return Ok(Self { start: null_mut(), bytes });
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses where, so nothing that is mapped is replaced.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags)? };
        let all = Self { start, bytes };
        for page in (0..count as usize).step_by(2) {
            let at = start.wrapping_byte_add(page * PAGE);
            // SAFETY: the page is of the mapping that was just made, to which there are no references.
            unsafe { mprotect(at, PAGE, MprotectFlags::READ)? };
        }
        Ok(all)
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        if self.bytes != 0 {
            // SAFETY: all of it was mapped by `new`, is not referenced, and is unmapped once.
            let unmapped = unsafe { munmap(self.start, self.bytes) };
            debug_assert_eq!(unmapped, Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::read_to_string;

    use super::*;

    #[test]
    fn there_are_as_many_mappings_more_and_none_when_it_is_dropped() {
        // Other tests of this program map little meanwhile.
        let count = || read_to_string("/proc/self/maps").unwrap().lines().count();
        let before = count();
        let mappings = Mappings::new(5000).unwrap();
        assert!(count().abs_diff(before + 5000) < 100, "{} beside {before}", count());
        drop(mappings);
        assert!(count().abs_diff(before) < 100, "{} beside {before}", count());
        drop(Mappings::new(0).unwrap());
    }
}
