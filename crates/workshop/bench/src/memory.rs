//! From a guest address to the slot or region that has it.

use std::hint::black_box;
use std::sync::Arc;

use mayfly_memslot::{AddressSpace, Flags, Gpa, Hva, LastHit, MemSlots, PAGE_SIZE, Region, SlotId};
use mayfly_platform::Platform;
use mayfly_srcu::{Reader, Srcu};
use vm_memory::{
    GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryBackend, GuestMemoryMmap,
};

use crate::addresses::Addresses;

/// From one slot's first address to the next one's.
const STRIDE: u64 = 32 * PAGE_SIZE;
/// How many bytes a slot has.
const LEN: u64 = 16 * PAGE_SIZE;
/// Mayfly's host addresses. Nothing is there: lookups do not touch the memory.
const HOST: u64 = 0x7f00_0000_0000;

/// Addresses in any of `slots` slots, uniformly.
pub fn uniform(slots: u16) -> Addresses {
    Addresses::uniform(u64::from(slots), STRIDE, LEN, 8)
}

/// One address in one of `slots` slots.
pub fn same(slots: u16) -> Addresses {
    Addresses::same(u64::from(slots / 2) * STRIDE + 8)
}

/// `slots` slots of Mayfly's.
///
/// # Panics
///
/// If there is no memory for them.
pub fn mayfly(domain: &Srcu, platform: Arc<dyn Platform>, slots: u16) -> MemSlots<Hva> {
    let memory = MemSlots::try_new(platform, domain).expect("no slots take little memory");
    for index in 0..slots {
        let start = u64::from(index) * STRIDE;
        let region = Region {
            slot: SlotId::main(index),
            flags: Flags::empty(),
            gpa: Gpa::new(start),
            size: LEN,
            backing: Hva::new(HOST + start),
        };
        memory.set(&region).expect("no two slots overlap");
    }
    memory
}

/// `regions` regions of vm-memory's, which maps their memory.
///
/// # Panics
///
/// If there is no memory for them.
pub fn vm_memory(regions: u16) -> GuestMemoryAtomic<GuestMemoryMmap> {
    let ranges: Vec<_> =
        (0..regions).map(|index| (GuestAddress(u64::from(index) * STRIDE), LEN as usize)).collect();
    let mapped = GuestMemoryMmap::from_ranges(&ranges).expect("the host maps some memory");
    GuestMemoryAtomic::new(mapped)
}

/// `count` lookups, each a section of its own.
#[inline(never)]
pub fn mayfly_lookups(memory: &MemSlots<Hva>, reader: &Reader, addresses: &Addresses, count: u32) {
    for address in addresses.take(count) {
        let section = reader.lock();
        let slots = memory.load(AddressSpace::Main, &section);
        black_box(slots.find(Gpa::new(address).gfn()));
    }
}

/// `count` lookups in one section and one snapshot.
#[inline(never)]
pub fn mayfly_lookups_inside(
    memory: &MemSlots<Hva>,
    reader: &Reader,
    addresses: &Addresses,
    count: u32,
) {
    let section = reader.lock();
    let slots = memory.load(AddressSpace::Main, &section);
    for address in addresses.take(count) {
        black_box(slots.find(Gpa::new(address).gfn()));
    }
}

/// `count` lookups that look first where the last one found its slot, each a section of its own.
#[inline(never)]
pub fn mayfly_lookups_near(
    memory: &MemSlots<Hva>,
    reader: &Reader,
    last: &mut LastHit,
    addresses: &Addresses,
    count: u32,
) {
    for address in addresses.take(count) {
        let section = reader.lock();
        let slots = memory.load(AddressSpace::Main, &section);
        black_box(slots.find_near(Gpa::new(address).gfn(), last));
    }
}

/// `count` lookups, each in a snapshot loaded for it.
#[inline(never)]
pub fn vm_memory_lookups(
    memory: &GuestMemoryAtomic<GuestMemoryMmap>,
    addresses: &Addresses,
    count: u32,
) {
    for address in addresses.take(count) {
        let regions = memory.memory();
        black_box(regions.find_region(GuestAddress(address)));
    }
}

/// `count` lookups in one snapshot, which is kept.
#[inline(never)]
pub fn vm_memory_lookups_inside(
    memory: &GuestMemoryAtomic<GuestMemoryMmap>,
    addresses: &Addresses,
    count: u32,
) {
    let regions = memory.memory();
    for address in addresses.take(count) {
        black_box(regions.find_region(GuestAddress(address)));
    }
}
