//! EL2's own tables. They map memory, devices and the image one to one, each with the rights that it needs.

use aarch64_paging::descriptor::El23Attributes as Attributes;
use aarch64_paging::idmap::IdMap;
use aarch64_paging::paging::{El2, MemoryRegion};
use alloc::boxed::Box;
use mayfly_hypervisor::memory_map::whole_frames;
use mayfly_hypervisor::tree::Board;

/// The end of what the tables map: three levels have addresses of 39 bits. Memory beyond it is not used.
pub(crate) const LIMIT: u64 = 1 << 39;

const COMMON: Attributes =
    Attributes::VALID.union(Attributes::ACCESSED).union(Attributes::USER_RES1);
const MEMORY: Attributes = COMMON
    .union(Attributes::ATTRIBUTE_INDEX_0)
    .union(Attributes::INNER_SHAREABLE)
    .union(Attributes::XN);
const DEVICE: Attributes = COMMON.union(Attributes::ATTRIBUTE_INDEX_1).union(Attributes::XN);

unsafe extern "C" {
    static image_start: u8;
    static text_end: u8;
    static rodata_end: u8;
    static image_end: u8;
}

/// The addresses of the image.
pub(crate) fn image() -> core::ops::Range<u64> {
    (&raw const image_start).addr() as u64..(&raw const image_end).addr() as u64
}

/// Maps what the machine has, and makes this processor use that map. Returns the address of the tables, which are never
/// freed.
///
/// # Errors
///
/// When there is no memory for them, or an address has more than 39 bits.
pub(crate) fn activate(board: &Board) -> Result<u64, aarch64_paging::MapError> {
    let mut map = IdMap::new(1, El2);
    let region =
        |range: core::ops::Range<u64>| MemoryRegion::new(range.start as usize, range.end as usize);
    for memory in whole_frames(&board.memory, &board.unmapped, LIMIT) {
        map.map_range(&region(memory), MEMORY)?;
    }
    let devices = [&board.distributor, &board.redistributors, &board.uart, &board.clock];
    for device in devices.into_iter().filter(|device| !device.is_empty()) {
        map.map_range(&region(device.clone()), DEVICE)?;
    }
    let image = image();
    let text = (&raw const text_end).addr() as u64;
    let constants = (&raw const rodata_end).addr() as u64;
    let code = MEMORY.difference(Attributes::XN) | Attributes::READ_ONLY;
    map.map_range(&region(image.start..text), code)?;
    map.map_range(&region(text..constants), MEMORY | Attributes::READ_ONLY)?;
    map.map_range(&region(constants..image.end), MEMORY)?;
    let map = Box::leak(Box::new(map));
    // SAFETY: all that the program uses is mapped where it was, and the tables stay.
    unsafe { map.activate() };
    // SAFETY: forgets translations by the first tables, which say the same, with more rights.
    unsafe { core::arch::asm!("dsb ish", "tlbi alle2", "dsb ish", "isb", options(nostack)) };
    Ok(map.root_address().0 as u64)
}
