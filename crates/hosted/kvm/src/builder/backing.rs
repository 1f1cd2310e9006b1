//! What a guest's memory is made of.

use std::fs::File;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise};
use vm_memory::mmap::{MmapRegionBuilder, MmapRegionError};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::{Error, HugePages};

/// What a guest's memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous and private.
    Anonymous,
    /// A memfd, shared: another process that is given the file sees the same memory, as `vhost-user` needs it.
    Memfd,
    /// Pages of 2 MiB that the host has set aside (`vm.nr_hugepages`), private.
    HugeTlb,
}

impl Backing {
    /// Maps memory for each guest physical address and size of `ranges`, in bytes. With `huge_pages`, transparent huge
    /// pages are asked for, or refused; pages of [`Backing::HugeTlb`] are huge in any case.
    ///
    /// # Errors
    /// [`Error::Call`] with `mmap`: EINVAL for a size that is not a multiple of a page, ENOMEM where there is no room, or
    /// for [`Backing::HugeTlb`] too few pages are set aside; with `memfd_create`, `ftruncate` or `madvise`.
    /// [`Error::Ranges`] for ranges that overlap, are empty or are not in order.
    pub fn map(
        self,
        ranges: &[(u64, usize)],
        huge_pages: Option<HugePages>,
    ) -> Result<GuestMemoryMmap, Error> {
        let mut regions = Vec::new();
        for &(gpa, size) in ranges {
            let region = self.region(size)?;
            if let Some(huge_pages) = huge_pages.filter(|_| self != Self::HugeTlb) {
                advise(&region, huge_pages)?;
            }
            let region = GuestRegionMmap::new(region, GuestAddress(gpa)).ok_or(Error::Ranges)?;
            regions.push(region);
        }
        GuestMemoryMmap::from_regions(regions).map_err(|_| Error::Ranges)
    }

    fn region(self, size: usize) -> Result<MmapRegion, Error> {
        let private = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let anonymous = libc_flags(private) | ANONYMOUS;
        let of = |flags: i32| {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            MmapRegionBuilder::new(size)
                .with_mmap_prot(prot.bits().cast_signed())
                .with_mmap_flags(flags)
        };
        let built = match self {
            Self::Anonymous => of(anonymous).build(),
            Self::Memfd => {
                let file = memfd_create("guest", MemfdFlags::CLOEXEC)
                    .map_err(Error::call("memfd_create"))?;
                ftruncate(&file, size as u64).map_err(Error::call("ftruncate"))?;
                let flags = libc_flags(MapFlags::SHARED | MapFlags::NORESERVE);
                of(flags).with_file_offset(FileOffset::new(File::from(file), 0)).build()
            }
            // Reserved, so that what there is too little of is known now, and not by a SIGBUS.
            Self::HugeTlb => {
                let huge = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
                of(libc_flags(huge) | ANONYMOUS).with_hugetlbfs(true).build()
            }
        };
        built.map_err(|error| match error {
            MmapRegionError::Mmap(error) => Error::io("mmap")(error),
            _ => Error::Ranges,
        })
    }
}

/// `MAP_ANONYMOUS`, which rustix sets by another function: the same on all architectures that KVM is on.
const ANONYMOUS: i32 = 0x20;

fn libc_flags(flags: MapFlags) -> i32 {
    flags.bits().cast_signed()
}

fn advise(region: &MmapRegion, huge_pages: HugePages) -> Result<(), Error> {
    let advice = match huge_pages {
        HugePages::Wanted => Advice::LinuxHugepage,
        HugePages::Unwanted => Advice::LinuxNoHugepage,
    };
    // SAFETY: all of a mapping that lives as long as `region`; the advice changes what backs its pages, and never what
    // they hold.
    unsafe { madvise(region.as_ptr().cast(), region.size(), advice) }
        .map_err(Error::call("madvise"))
}
