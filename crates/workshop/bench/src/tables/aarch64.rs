//! Tables of the crate aarch64-paging: Arm's stage 2 with 48 bits.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Arc;

use aarch64_paging::descriptor::{PhysicalAddress, Stage2Attributes};
use aarch64_paging::paging::{
    Constraints, MemoryRegion, PageTable, RootTable, Stage2, Translation,
};
use mayfly_machine::Hardware;
use mayfly_platform::address::{PAGE_SHIFT, PAGE_SIZE, Pfn};

use super::{BACKING, GIB, Memory};
use crate::addresses::Addresses;

/// The level of the root, counted as Arm does.
const ROOT_LEVEL: usize = 0;

/// What Mayfly's leaves have: write-back memory, read, written and executed, used.
const ATTRIBUTES: Stage2Attributes = Stage2Attributes::VALID
    .union(Stage2Attributes::MEMATTR_NORMAL_INNER_WB)
    .union(Stage2Attributes::MEMATTR_NORMAL_OUTER_WB)
    .union(Stage2Attributes::S2AP_ACCESS_RW)
    .union(Stage2Attributes::SH_INNER)
    .union(Stage2Attributes::ACCESS_FLAG);

impl Translation<Stage2Attributes> for Memory {
    #[inline]
    fn allocate_table(&mut self) -> (NonNull<PageTable<Stage2Attributes>>, PhysicalAddress) {
        let address = self.allocate();
        (self.table(address), PhysicalAddress(address as usize))
    }

    unsafe fn deallocate_table(&mut self, table: NonNull<PageTable<Stage2Attributes>>) {
        let address = table.addr().get() - self.linear_map.addr();
        self.hardware.arena().free(Pfn::new(address as u64 >> PAGE_SHIFT), 0);
    }

    #[inline]
    fn physical_to_virtual(
        &self,
        address: PhysicalAddress,
    ) -> NonNull<PageTable<Stage2Attributes>> {
        self.table(address.0 as u64)
    }
}

/// A tree of tables, which one thread changes.
#[derive(Debug)]
pub struct Tables {
    hardware: Arc<Hardware>,
    root: RootTable<Stage2, Memory>,
}

impl Tables {
    /// Empty ones, of frames of `hardware`.
    pub fn new(hardware: &Arc<Hardware>) -> Self {
        let root = RootTable::new(Memory::new(hardware), ROOT_LEVEL, Stage2);
        Self { hardware: Arc::clone(hardware), root }
    }

    /// As `new`, with everything mapped.
    pub fn mapped(hardware: &Arc<Hardware>) -> Self {
        let mut this = Self::new(hardware);
        this.map_run();
        this
    }

    /// Maps the GiB at once.
    ///
    /// # Panics
    ///
    /// If the arena has no frame left.
    #[inline(never)]
    pub fn map_run(&mut self) {
        self.map(0, GIB);
    }

    /// Maps the GiB page by page.
    ///
    /// # Panics
    ///
    /// If the arena has no frame left.
    #[inline(never)]
    pub fn map_pages(&mut self) {
        for address in (0..GIB).step_by(PAGE_SIZE as usize) {
            self.map(address, address + PAGE_SIZE);
        }
    }

    #[inline]
    fn map(&mut self, start: u64, end: u64) {
        let region = MemoryRegion::new(start as usize, end as usize);
        let physical = PhysicalAddress((BACKING * PAGE_SIZE + start) as usize);
        let pages = Constraints::NO_BLOCK_MAPPINGS;
        self.root.map_range(&region, physical, ATTRIBUTES, pages).expect("48 bits reach so far");
    }

    /// Gives every table back, and begins with an empty root.
    pub fn renew(&mut self) {
        *self = Self::new(&self.hardware);
    }

    /// The level that `address` is mapped at, counted as Arm does, and the physical address.
    pub fn translation(&self, address: u64) -> (usize, u64) {
        let mut found = (0, 0);
        self.walk(address, |level, _, physical| found = (level, physical as u64));
        found
    }

    /// `count` addresses translated.
    #[inline(never)]
    pub fn translate(&self, addresses: &Addresses, count: u32) {
        for address in addresses.take(count) {
            self.walk(address, |level, attributes, physical| {
                black_box((level, attributes, physical));
            });
        }
    }

    #[inline]
    fn walk(&self, address: u64, mut found: impl FnMut(usize, Stage2Attributes, usize)) {
        let page = MemoryRegion::new(address as usize, address as usize + 1);
        let walked = self.root.walk_range(&page, &mut |_, entry, level| {
            found(level, entry.flags(), entry.output_address().0);
            Ok(())
        });
        walked.expect("48 bits reach so far");
    }
}
