//! Tables of the crate `page_table_multiarch`, in x86-64's format: four levels.
//!
//! Its handler of frames has no state, so the arena is a static.

use std::hint::black_box;
use std::sync::{Arc, OnceLock};

use mayfly_machine::Hardware;
use mayfly_platform::address::PAGE_SIZE;
use memory_addr::{PhysAddr, VirtAddr};
use page_table_entry::x86_64::X64PTE;
use page_table_multiarch::{MappingFlags, PageSize, PageTable64, PagingHandler, PagingMetaData};

use super::{BACKING, GIB, Memory};
use crate::addresses::Addresses;

/// Where tables come from. Those that a program makes first say which arena it is.
static MEMORY: OnceLock<Memory> = OnceLock::new();

/// x86-64's four levels, without the processor's TLB: no processor uses the tables.
struct FourLevels;

impl PagingMetaData for FourLevels {
    const LEVELS: usize = 4;
    const PA_MAX_BITS: usize = 52;
    const VA_MAX_BITS: usize = 48;

    type VirtAddr = VirtAddr;

    fn flush_tlb(_: Option<VirtAddr>) {}
}

/// Frames of [`MEMORY`], which go with their arena.
struct Frames;

impl PagingHandler for Frames {
    fn alloc_frames(count: usize, align: usize) -> Option<PhysAddr> {
        (count == 1 && align as u64 <= PAGE_SIZE)
            .then(|| PhysAddr::from(MEMORY.get().expect("set before").allocate() as usize))
    }

    fn dealloc_frames(_: PhysAddr, _: usize) {}

    #[inline]
    fn phys_to_virt(address: PhysAddr) -> VirtAddr {
        let memory = MEMORY.get().expect("set before");
        VirtAddr::from(memory.table::<u8>(address.as_usize() as u64).as_ptr() as usize)
    }
}

/// A tree of tables.
pub struct Tables(PageTable64<FourLevels, X64PTE, Frames>);

impl Tables {
    /// The GiB mapped by frames of `hardware`, which must be the same each time.
    ///
    /// # Panics
    ///
    /// If the arena has no frame left.
    pub fn mapped(hardware: &Arc<Hardware>) -> Self {
        let memory = MEMORY.get_or_init(|| Memory::new(hardware));
        assert!(Arc::ptr_eq(&memory.hardware, hardware), "the tables are of another arena");
        let mut tables = PageTable64::try_new().expect("the arena is large enough");
        let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
        let mut cursor = tables.cursor();
        for address in (0..GIB).step_by(PAGE_SIZE as usize) {
            let frame = PhysAddr::from((BACKING * PAGE_SIZE + address) as usize);
            let page = VirtAddr::from(address as usize);
            let mapped = cursor.map(page, frame, PageSize::Size4K, flags);
            mapped.expect("each page is mapped once");
        }
        drop(cursor);
        Self(tables)
    }

    /// The physical address that `address` is mapped to, if it is.
    pub fn translation(&self, address: u64) -> Option<u64> {
        let found = self.0.query(VirtAddr::from(address as usize)).ok();
        found.map(|(physical, ..)| physical.as_usize() as u64)
    }

    /// `count` addresses translated.
    #[inline(never)]
    pub fn translate(&self, addresses: &Addresses, count: u32) {
        for address in addresses.take(count) {
            let _ = black_box(self.0.query(VirtAddr::from(address as usize)));
        }
    }
}
