//! The program's own tables. They map memory, devices and the image one to one, each with the rights that it needs. Nothing is
//! mapped at zero, and nothing behind the first processor's stack.

use alloc::alloc::{Layout, alloc_zeroed};
use core::ops::Range;
use core::ptr::addr_of;

use mayfly_hypervisor::board::Board;
use mayfly_hypervisor::memory_map::whole_frames;
use mayfly_vm::platform::address::PAGE_SIZE;
use mayfly_x86::bare::{apic, ioapic};
use x86_64::registers::control::{Cr0, Cr0Flags, Cr3, Cr3Flags};
use x86_64::structures::paging::mapper::{MapToError, MapperFlush};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, OffsetPageTable, Page, PageSize, PageTable, PageTableFlags as Flags,
    PhysFrame, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

use crate::bare::threads;

/// The end of what the tables map one to one: behind it are the addresses of stacks. Memory beyond it is not used.
pub(super) const LIMIT: u64 = threads::STACKS_AT;

const BLOCK: u64 = 2 << 20;

unsafe extern "C" {
    static image_start: u8;
    static text_end: u8;
    static constants_end: u8;
    static image_end: u8;
    static stack_end: u8;
}

/// The addresses of the image.
pub(super) fn image() -> Range<u64> {
    addr_of!(image_start) as u64..addr_of!(image_end) as u64
}

/// The addresses of the page below the first processor's stack.
pub(super) fn guard() -> Range<u64> {
    let start = addr_of!(stack_end) as u64;
    start..start + PAGE_SIZE
}

/// Memory for tables, which is never given back.
struct Heap;

// SAFETY: each page is given out once, and is zeroes; the heap lies at its addresses.
unsafe impl FrameAllocator<Size4KiB> for Heap {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        const PAGE: Layout = match Layout::from_size_align(4096, 4096) {
            Ok(layout) => layout,
            Err(_) => panic!("a page is not a layout"),
        };
        // SAFETY: the layout is of no size zero.
        let page = unsafe { alloc_zeroed(PAGE) };
        let address = PhysAddr::new(page.expose_provenance() as u64);
        (!page.is_null()).then(|| PhysFrame::containing_address(address))
    }
}

/// The tables of the program, which are never freed.
pub(super) struct Tables {
    mapper: OffsetPageTable<'static>,
    root: u64,
}

/// There is no memory for tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoMemory;

impl Tables {
    /// The address of the first of them.
    pub(super) fn root(&self) -> u64 {
        self.root
    }

    /// Maps addresses of a device, which no table maps yet. Returns whether there was memory for that, and they can be mapped.
    pub(super) fn add_device(&mut self, addresses: &Range<u64>) -> bool {
        let pages = addresses.start / PAGE_SIZE * PAGE_SIZE..addresses.end;
        addresses.end <= LIMIT
            && pages.step_by(PAGE_SIZE as usize).all(|at| self.page(at, DEVICE).is_ok())
    }

    fn page(&mut self, at: u64, flags: Flags) -> Result<(), NoMemory> {
        let page = Page::<Size4KiB>::containing_address(VirtAddr::new(at));
        let frame = PhysFrame::containing_address(PhysAddr::new(at));
        // SAFETY: memory, or a device, at its own address.
        done(unsafe { self.mapper.map_to(page, frame, flags, &mut Heap) })
    }

    fn block(&mut self, at: u64) -> Result<(), NoMemory> {
        let page = Page::<Size2MiB>::containing_address(VirtAddr::new(at));
        let frame = PhysFrame::containing_address(PhysAddr::new(at));
        // SAFETY: as above.
        done(unsafe { self.mapper.map_to(page, frame, DATA, &mut Heap) })
    }
}

/// What two regions both have is mapped once.
fn done<S: PageSize>(mapped: Result<MapperFlush<S>, MapToError<S>>) -> Result<(), NoMemory> {
    match mapped {
        // What was not mapped is in no TLB.
        Ok(flush) => flush.ignore(),
        Err(MapToError::FrameAllocationFailed) => return Err(NoMemory),
        Err(_) => {}
    }
    Ok(())
}

/// Maps what the machine has, and makes this processor use that map.
///
/// # Errors
///
/// When there is no memory for the tables.
pub(super) fn activate(board: &Board) -> Result<Tables, NoMemory> {
    let top = Heap.allocate_frame().ok_or(NoMemory)?;
    let root = top.start_address().as_u64();
    let table = core::ptr::with_exposed_provenance_mut::<PageTable>(root as usize);
    // SAFETY: a page of zeroes that nothing else has; memory is mapped at its addresses, now and later.
    let mapper = unsafe { OffsetPageTable::new(&mut *table, VirtAddr::zero()) };
    let mut tables = Tables { mapper, root };
    let image = addr_of!(image_end) as u64;
    for memory in whole_frames(&board.memory, &[], LIMIT) {
        let mut at = memory.start;
        while at < memory.end {
            // A block where it is of this region alone, and has nothing of the program.
            if at.is_multiple_of(BLOCK) && at >= image && at + BLOCK <= memory.end {
                tables.block(at)?;
                at += BLOCK;
            } else {
                flags(at).map_or(Ok(()), |flags| tables.page(at, flags))?;
                at += PAGE_SIZE;
            }
        }
    }
    for device in [apic::page(), ioapic::PAGE] {
        tables.page(device, DEVICE)?;
    }
    // SAFETY: they map what is used, at the addresses at which it is.
    unsafe { use_tables(root) };
    Ok(tables)
}

/// Has this processor walk the tables whose first is at `root`.
///
/// # Safety
///
/// They map all that it uses, where it is. It has no-execute turned on.
pub(super) unsafe fn use_tables(root: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        Cr3::write(PhysFrame::containing_address(PhysAddr::new(root)), Cr3Flags::empty());
        Cr0::update(|flags| *flags |= Cr0Flags::WRITE_PROTECT);
    }
}

const DATA: Flags = Flags::PRESENT.union(Flags::WRITABLE).union(Flags::NO_EXECUTE);
const DEVICE: Flags = DATA.union(Flags::NO_CACHE).union(Flags::WRITE_THROUGH);

/// The rights of a page of the program, or of memory; none for the one behind the stack's end.
fn flags(at: u64) -> Option<Flags> {
    if at == guard().start {
        None
    } else if !image().contains(&at) {
        Some(DATA)
    } else if at < addr_of!(text_end) as u64 {
        Some(Flags::PRESENT)
    } else if at < addr_of!(constants_end) as u64 {
        Some(Flags::PRESENT | Flags::NO_EXECUTE)
    } else {
        Some(DATA)
    }
}
