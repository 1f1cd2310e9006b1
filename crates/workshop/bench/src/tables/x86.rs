//! Tables of the crate `x86_64`: four levels, as Intel's EPT and AMD's NPT have them.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Arc;

use mayfly_machine::Hardware;
use mayfly_platform::address::PAGE_SIZE;
use x86_64::structures::paging::mapper::{OffsetPageTable, Translate};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, Page, PageTable, PageTableFlags, PhysFrame, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

use super::{BACKING, GIB, Memory};
use crate::addresses::Addresses;

const FLAGS: PageTableFlags = PageTableFlags::PRESENT
    .union(PageTableFlags::WRITABLE)
    .union(PageTableFlags::USER_ACCESSIBLE)
    .union(PageTableFlags::ACCESSED);

// SAFETY: the arena gives every frame to one user.
unsafe impl FrameAllocator<Size4KiB> for Memory {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        Some(PhysFrame::containing_address(PhysAddr::new(self.allocate())))
    }
}

/// A tree of tables, whose frames go with their arena.
#[derive(Debug)]
pub struct Tables {
    mapper: OffsetPageTable<'static>,
    /// Keeps the arena.
    _memory: Memory,
}

impl Tables {
    /// The GiB mapped by frames of `hardware`.
    ///
    /// # Panics
    ///
    /// If the arena has no frame left.
    pub fn mapped(hardware: &Arc<Hardware>) -> Self {
        let mut memory = Memory::new(hardware);
        let mut root: NonNull<PageTable> = memory.table(memory.allocate());
        let offset = VirtAddr::from_ptr(memory.linear_map);
        // SAFETY: the root is a frame of zeroes, hence an empty table, and this one's alone; the arena, which `_memory`
        // keeps, has frame n at n pages from the offset.
        let mut mapper = unsafe { OffsetPageTable::new(root.as_mut(), offset) };
        for address in (0..GIB).step_by(PAGE_SIZE as usize) {
            let page = Page::<Size4KiB>::containing_address(VirtAddr::new(address));
            let frame = PhysFrame::containing_address(PhysAddr::new(BACKING * PAGE_SIZE + address));
            // SAFETY: no processor uses the tables.
            let flush = unsafe { mapper.map_to(page, frame, FLAGS, &mut memory) };
            flush.expect("each page is mapped once").ignore();
        }
        Self { mapper, _memory: memory }
    }

    /// The physical address that `address` is mapped to, if it is.
    pub fn translation(&self, address: u64) -> Option<u64> {
        self.mapper.translate_addr(VirtAddr::new(address)).map(PhysAddr::as_u64)
    }

    /// `count` addresses translated.
    #[inline(never)]
    pub fn translate(&self, addresses: &Addresses, count: u32) {
        for address in addresses.take(count) {
            black_box(self.mapper.translate(VirtAddr::new_truncate(address)));
        }
    }
}
