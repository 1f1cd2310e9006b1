//! What is in the pages.

use mayfly_platform::address::PAGE_SIZE;

use crate::params::Size;

/// VMs at most: as many as may have one frame in common. And a value has room for them.
pub(super) const MOST_VMS: u32 = 256;

const STAMP_SHIFT: u32 = 36;
const VM_SHIFT: u32 = 24;

const _: () = assert!(MOST_VMS < 1 << (STAMP_SHIFT - VM_SHIFT));

/// What happens to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is written in each phase: equal in all VMs, or different.
    Patterned,
    /// It is written again and again.
    Hot,
    /// It is read, and all zeroes.
    Zero,
}

/// What page `page` of a VM is for.
pub(super) fn used_for(page: usize) -> Use {
    match page % 64 {
        0 => Use::Hot,
        at if at % 16 == 15 => Use::Zero,
        _ => Use::Patterned,
    }
}

/// Pages of a VM.
pub(super) fn pages_of(memory: Size) -> usize {
    (memory.bytes() / PAGE_SIZE) as usize
}

/// Pages of a VM for this use.
pub(super) fn count(pages: usize, wanted: Use) -> u64 {
    (0..pages).filter(|&page| used_for(page) == wanted).count() as u64
}

/// What has become of the patterned pages: numbered from 1, and equal or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase(pub(super) u64);

impl Phase {
    /// Whether pages of one number are equal in all VMs; otherwise no two pages are.
    fn is_equal(self) -> bool {
        !self.0.is_multiple_of(2)
    }

    /// The first word of page `page` of VM `vm`.
    pub(super) fn value(self, vm: u32, page: usize) -> u64 {
        value(self.0, if self.is_equal() { 0 } else { vm + 1 }, page)
    }
}

/// The first word of a hot page that is written for the `count`th time.
pub(super) fn hot(count: u64, vm: u32, page: usize) -> u64 {
    value(count, vm + 1, page)
}

/// The number of the phase, or how often a hot page was written.
pub(super) fn stamp(value: u64) -> u64 {
    value >> STAMP_SHIFT
}

/// Values of a page grow with what comes first.
fn value(stamp: u64, vm: u32, page: usize) -> u64 {
    stamp << STAMP_SHIFT | u64::from(vm) << VM_SHIFT | page as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_one_number_are_equal_in_odd_phases_and_no_two_are_in_even_ones() {
        let of = |phase, vm, page| Phase(phase).value(vm, page);
        assert_eq!(of(1, 0, 5), of(1, 7, 5));
        assert_ne!(of(1, 0, 5), of(1, 0, 6));
        assert_ne!(of(2, 0, 5), of(2, 7, 5));
        assert_ne!(hot(2, 0, 5), of(2, 7, 5));
    }

    #[test]
    fn what_is_written_later_is_larger() {
        for phase in 1..10 {
            assert!(Phase(phase).value(MOST_VMS - 1, 77) < Phase(phase + 1).value(0, 77));
            assert!(hot(phase, 5, 64) < hot(phase + 1, 5, 64));
        }
    }

    #[test]
    fn every_page_is_of_one_use_and_most_are_patterned() {
        let counts = [Use::Patterned, Use::Hot, Use::Zero].map(|wanted| count(1024, wanted));
        assert_eq!(counts, [944, 16, 64]);
    }
}
