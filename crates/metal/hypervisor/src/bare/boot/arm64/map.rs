//! EL2's own tables. They map memory, devices and the image one to one, each with the rights that it needs.

use aarch64_paging::descriptor::El23Attributes as Attributes;
use aarch64_paging::idmap::IdMap;
use aarch64_paging::paging::{El2, MemoryRegion};
use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use mayfly_hypervisor::memory_map::whole_frames;
use mayfly_hypervisor::tree::Tree;
use mayfly_vm::platform::address::PAGE_SIZE;

use super::first_tables::FIRST_TABLES;
use crate::bare::threads;

/// The end of what the tables map one to one: four levels have addresses of 48 bits, and the last 512 GiB of them are
/// those of stacks. Memory beyond it is not used.
pub(crate) const LIMIT: u64 = threads::STACKS_AT;

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
    static stack_guard: u8;
    static image_end: u8;
}

/// The addresses of the page below the first processor's stack.
pub(super) fn guard() -> Range<u64> {
    let start = (&raw const stack_guard).addr() as u64;
    start..start + PAGE_SIZE
}

/// The addresses of the image.
pub(crate) fn image() -> Range<u64> {
    (&raw const image_start).addr() as u64..(&raw const image_end).addr() as u64
}

/// Has the first tables map the GiB of a device, if they do not map it yet. One such device, before [`activate`].
///
/// # Safety
///
/// There is a device, and no memory that is used as such.
pub(crate) unsafe fn reach(device: u64) {
    const VALID_TABLE: u64 = 3;
    const FIRST_DEVICE: u64 = 1 | 1 << 10 | 1 << 2 | 1 << 54;
    let [root, .., spare] = &FIRST_TABLES.0;
    let (at, in_table) = ((device >> 39) as usize, (device >> 30) as usize % 512);
    let Some(entry) = root.get(at) else { return };
    let table = match entry.load(Ordering::Relaxed) {
        0 => {
            entry.store(spare.as_ptr().addr() as u64 | VALID_TABLE, Ordering::Relaxed);
            spare
        }
        // The image's own tables are where they say.
        address => {
            let address = address & !VALID_TABLE;
            let is_at = |table: &&[AtomicU64; 512]| table.as_ptr().addr() as u64 == address;
            let Some(table) = FIRST_TABLES.0.iter().find(is_at) else { return };
            table
        }
    };
    if table[in_table].load(Ordering::Relaxed) == 0 {
        table[in_table].store(device >> 30 << 30 | FIRST_DEVICE, Ordering::Relaxed);
    }
    // SAFETY: an entry that was not there is seen by walks.
    unsafe { core::arch::asm!("dsb ishst", "isb", options(nostack)) };
}

/// The tables of the program, which are never freed.
pub(crate) struct Tables(&'static mut IdMap<El2>);

impl Tables {
    /// The address of the first of them.
    pub(crate) fn root(&self) -> u64 {
        self.0.root_address().0 as u64
    }

    /// Maps addresses of a device, which no table maps yet. Returns whether there was memory for that, and they can be mapped.
    pub(crate) fn add_device(&mut self, addresses: &Range<u64>) -> bool {
        let is_mapped =
            addresses.end <= LIMIT && self.0.map_range(&region(addresses), DEVICE).is_ok();
        // SAFETY: entries that were not there are seen by walks of all processors.
        unsafe { core::arch::asm!("dsb ishst", "isb", options(nostack)) };
        is_mapped
    }
}

fn region(addresses: &Range<u64>) -> MemoryRegion {
    MemoryRegion::new(addresses.start as usize, addresses.end as usize)
}

/// Maps what the machine has, and makes this processor use that map. Of the addresses of PCI buses, it has the
/// configuration of their functions.
///
/// # Errors
///
/// When there is no memory for the tables, or an address has more than 48 bits.
pub(crate) fn activate(machine: &Tree) -> Result<Tables, aarch64_paging::MapError> {
    let mut map = IdMap::new(0, El2);
    for memory in whole_frames(&machine.board.memory, &machine.unmapped, LIMIT) {
        map.map_range(&region(&memory), MEMORY)?;
    }
    let devices = [&machine.distributor, &machine.uart, &machine.clock];
    let virtio = machine.virtio.iter().map(|place| &place.region);
    let pci = machine.pci.iter().filter_map(|place| Some(&place.bus.as_ref().ok()?.configuration));
    let devices = devices.into_iter().chain(&machine.redistributors).chain(virtio).chain(pci);
    for device in devices.filter(|device| !device.is_empty()) {
        map.map_range(&region(device), DEVICE)?;
    }
    let image = image();
    let text = (&raw const text_end).addr() as u64;
    let constants = (&raw const rodata_end).addr() as u64;
    let code = MEMORY.difference(Attributes::XN) | Attributes::READ_ONLY;
    map.map_range(&region(&(image.start..text)), code)?;
    map.map_range(&region(&(text..constants)), MEMORY | Attributes::READ_ONLY)?;
    map.map_range(&region(&(constants..image.end)), MEMORY)?;
    map.map_range(&region(&guard()), Attributes::empty())?;
    let map = Box::leak(Box::new(map));
    // SAFETY: all that the program uses is mapped where it was, and the tables stay.
    unsafe { map.activate() };
    // SAFETY: forgets translations by the first tables, which say the same, with more rights.
    unsafe { core::arch::asm!("dsb ish", "tlbi alle2", "dsb ish", "isb", options(nostack)) };
    Ok(Tables(map))
}
