//! Page tables of one shape, Mayfly's and its peers': 1 GiB of guest memory in pages of 4 KiB, behind it frames that
//! follow each other. The tables of all are frames of the same arena, reached through the same linear map.

pub mod aarch64;
pub mod mayfly;
pub mod multiarch;
pub mod x86;

use std::ptr::NonNull;
use std::sync::Arc;

use mayfly_machine::Hardware;
use mayfly_platform::address::PAGE_SIZE;
use mayfly_platform::frames::Frames;

use crate::addresses::Addresses;

/// How much is mapped, in bytes.
pub const GIB: u64 = 1 << 30;
/// How many pages that is.
pub const PAGES: u32 = (GIB / PAGE_SIZE) as u32;
/// How many frames there are for tables.
const FRAMES: usize = 1 << 14;
/// The number of the first frame behind it. Nothing is there: it is mapped, and not used.
const BACKING: u64 = 1 << 24;

/// Frames enough for a few sets of tables.
///
/// # Panics
///
/// If the host has no address space for them.
pub fn hardware() -> Arc<Hardware> {
    Arc::new(Hardware::new(FRAMES).expect("the host has some address space"))
}

/// As [`hardware`], where each frame has been used before, so that it is made zero when it is given out, as most are in
/// a machine that has been running for a while.
///
/// # Panics
///
/// As [`hardware`].
pub fn used_hardware() -> Arc<Hardware> {
    let hardware = hardware();
    let frames: Vec<_> = (0..FRAMES).map_while(|_| hardware.allocate(0).ok()).collect();
    for frame in frames {
        hardware.arena().free(frame, 0);
    }
    hardware
}

/// Pages of the GiB, uniformly.
pub fn uniform() -> Addresses {
    Addresses::uniform(1, GIB, GIB, PAGE_SIZE)
}

/// The machine's frames, as the peers ask for tables: by physical address.
#[derive(Debug)]
struct Memory {
    hardware: Arc<Hardware>,
    linear_map: *mut u8,
}

impl Memory {
    fn new(hardware: &Arc<Hardware>) -> Self {
        Self { hardware: Arc::clone(hardware), linear_map: hardware.linear_map().cast_mut().cast() }
    }

    /// A frame of zeroes.
    fn allocate(&self) -> u64 {
        self.hardware.allocate(0).expect("the arena is large enough").get() * PAGE_SIZE
    }

    /// Where the frame at `address` is.
    #[inline]
    fn table<T>(&self, address: u64) -> NonNull<T> {
        let table = self.linear_map.wrapping_add(address as usize).cast();
        // SAFETY: `address` is that of a frame which was allocated here, and the platform maps every such frame at this
        // place, which is not null.
        unsafe { NonNull::new_unchecked(table) }
    }
}

// SAFETY: the map is the arena's, which any thread may take frames from and write to.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

#[cfg(test)]
mod tests {
    use mayfly_platform::Host;
    use mayfly_platform::address::Gfn;
    use mayfly_stage2::{Arm, Ept, Format, Level};

    use super::*;
    use crate::sections;

    fn ours<F: Format>(hardware: &Arc<Hardware>) -> mayfly::Tables<F> {
        mayfly::Tables::new(hardware, &sections::domain(Arc::new(Host::new())))
    }

    /// The physical address that every page is mapped to.
    fn physical(address: u64) -> u64 {
        BACKING * PAGE_SIZE + address
    }

    #[test]
    fn all_map_the_same_pages_to_the_same_frames() {
        let hardware = hardware();
        let (run, single) = (ours::<Arm<48>>(&hardware), ours::<Ept>(&hardware));
        run.map_run();
        single.map_pages();
        let mut aarch64 = aarch64::Tables::new(&hardware);
        aarch64.map_run();
        let x86 = x86::Tables::mapped(&hardware);
        let multiarch = multiarch::Tables::mapped(&hardware);
        for address in [0, PAGE_SIZE, 0x1234_5000, GIB - PAGE_SIZE] {
            let gfn = Gfn::new(address / PAGE_SIZE);
            for found in [run.translation(gfn), single.translation(gfn)] {
                let (level, leaf) = found.expect("the page is mapped");
                assert_eq!((level, leaf.pfn.get() * PAGE_SIZE), (Level::PAGE, physical(address)));
            }
            assert_eq!(aarch64.translation(address), (3, physical(address)));
            assert_eq!(x86.translation(address), Some(physical(address)));
            assert_eq!(multiarch.translation(address), Some(physical(address)));
        }
        assert_eq!(run.translation(Gfn::new(u64::from(PAGES))), None);
        assert_eq!((x86.translation(GIB), multiarch.translation(GIB)), (None, None));
    }

    #[test]
    fn tables_made_anew_are_empty_and_take_no_more_frames() {
        let hardware = hardware();
        let mut ours = ours::<Arm<48>>(&hardware);
        let mut theirs = aarch64::Tables::new(&hardware);
        let empty = hardware.arena().in_use();
        for _ in 0..20 {
            ours.map_run();
            theirs.map_run();
            // Those of the pages, and one that leads to them; each in both.
            assert_eq!(hardware.arena().in_use() - empty, 2 * u64::from(PAGES / 512 + 2));
            ours.renew();
            theirs.renew();
            assert_eq!(hardware.arena().in_use(), empty);
        }
        assert_eq!(ours.translation(Gfn::new(0)), None);
    }
}
