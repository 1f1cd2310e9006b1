//! The program's own page tables: memory at its physical addresses, of which only code is executed, and of which neither
//! code nor constants are written; the local APIC, uncached. Nothing is mapped at zero, and nothing behind the stack's end.

use core::ptr::{addr_of, with_exposed_provenance_mut};

use mayfly_x86::boot::hvm::Region;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr3, Cr3Flags};
use x86_64::structures::paging::mapper::{MapToError, MapperFlush};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, OffsetPageTable, Page, PageSize, PageTable, PageTableFlags as Flags,
    PhysFrame, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

use crate::program::processor::interrupts;
use crate::program::world::frames;

const PAGE: u64 = 4096;
const BLOCK: u64 = 2 << 20;
/// What a PC has for other things.
const LOW: u64 = 0x10_0000;

unsafe extern "C" {
    static text_end: u8;
    static constants_end: u8;
    static image_end: u8;
    static stack_end: u8;
}

/// Frames for tables, which are never given back.
struct Tables;

// SAFETY: each frame is given out once.
unsafe impl FrameAllocator<Size4KiB> for Tables {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        let frame = frames::take(0)?;
        Some(PhysFrame::containing_address(PhysAddr::new(frame.get() * PAGE)))
    }
}

/// Makes the tables, and has the processor walk them.
///
/// # Panics
///
/// If there is no memory for them.
pub(super) fn prepare(map: &[Region]) {
    let top = Tables.allocate_frame().expect("there are frames for tables");
    let table = with_exposed_provenance_mut::<PageTable>(top.start_address().as_u64() as usize);
    // SAFETY: a frame of zeroes that nothing else has; frames are mapped at their addresses, now and later.
    let mut mapper = unsafe { OffsetPageTable::new(&mut *table, VirtAddr::zero()) };
    let image = addr_of!(image_end) as u64;
    let usable = map.iter().filter(|region| region.usable && region.end > LOW);
    for region in usable {
        let mut at = region.start.max(LOW).div_ceil(PAGE) * PAGE;
        while at < region.end {
            // A block where it is of this region alone, and has nothing of the program.
            if at.is_multiple_of(BLOCK) && at >= image && at + BLOCK <= region.end {
                map_block(&mut mapper, at);
                at += BLOCK;
            } else {
                map_page(&mut mapper, at, flags(at));
                at += PAGE;
            }
        }
    }
    map_page(&mut mapper, interrupts::page(), Some(DEVICE));
    // SAFETY: they map what is used, at the addresses at which it is. `svm::enable` has turned no-execute on.
    unsafe {
        Cr3::write(top, Cr3Flags::empty());
        Cr0::update(|flags| *flags |= Cr0Flags::WRITE_PROTECT);
    }
}

const DATA: Flags = Flags::PRESENT.union(Flags::WRITABLE).union(Flags::NO_EXECUTE);
const DEVICE: Flags = DATA.union(Flags::NO_CACHE).union(Flags::WRITE_THROUGH);

/// The rights of a page of the program, or of memory; none for the one behind the stack's end.
fn flags(at: u64) -> Option<Flags> {
    if at == addr_of!(stack_end) as u64 {
        None
    } else if at < addr_of!(text_end) as u64 {
        Some(Flags::PRESENT)
    } else if at < addr_of!(constants_end) as u64 {
        Some(Flags::PRESENT | Flags::NO_EXECUTE)
    } else {
        Some(DATA)
    }
}

fn map_page(mapper: &mut OffsetPageTable<'_>, at: u64, flags: Option<Flags>) {
    let Some(flags) = flags else { return };
    let page = Page::<Size4KiB>::containing_address(VirtAddr::new(at));
    let frame = PhysFrame::containing_address(PhysAddr::new(at));
    // SAFETY: memory, or the local APIC, at its own address.
    done(unsafe { mapper.map_to(page, frame, flags, &mut Tables) });
}

fn map_block(mapper: &mut OffsetPageTable<'_>, at: u64) {
    let page = Page::<Size2MiB>::containing_address(VirtAddr::new(at));
    let frame = PhysFrame::containing_address(PhysAddr::new(at));
    // SAFETY: as above.
    done(unsafe { mapper.map_to(page, frame, DATA, &mut Tables) });
}

/// What two regions both have is mapped once.
fn done<S: PageSize>(mapped: Result<MapperFlush<S>, MapToError<S>>) {
    match mapped {
        // The tables are not walked yet.
        Ok(flush) => flush.ignore(),
        Err(MapToError::FrameAllocationFailed) => {
            panic!("there is no memory for the program's own tables")
        }
        Err(_) => {}
    }
}
