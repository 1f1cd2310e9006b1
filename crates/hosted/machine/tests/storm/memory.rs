//! Memory that comes, moves and goes.
//!
//! Each slot has a value of its own, with which the first word of every page of its memory is filled before the guests
//! get it, and which they write to no other slot. Memory is unmapped as soon as its slot is deleted; the next mapping,
//! of whichever slot, is likely to get its address.

use mayfly_machine::HostMemory;
use mayfly_memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};

use crate::random::Random;
use crate::tally::What;
use crate::{Storm, VCPUS};

/// The slots that change; slot 0 does not.
const SLOTS: u16 = 4;
const PAGES: u64 = 8;
/// Places that a slot may be at.
const PLACES: u64 = 2;
/// What a vCPU has to itself.
const PRIVATE_PAGES: u64 = 16;

pub(crate) const PRIVATE_SIZE: u64 = VCPUS as u64 * PRIVATE_PAGES * PAGE_SIZE;

/// The slot of what the vCPUs have to themselves.
pub(crate) fn private_region(memory: &HostMemory) -> Region<Hva> {
    memory.region(SlotId::main(0), Gpa::new(0))
}

/// What vCPU `id` has to itself: where, and how many bytes.
pub(crate) fn private(id: u32) -> (Gpa, u64) {
    let len = PRIVATE_PAGES * PAGE_SIZE;
    (Gpa::new(u64::from(id) * len), len)
}

/// A part of a place where a slot may be: where, how many bytes, and the value of the slot.
pub(crate) fn part(random: &mut Random) -> (Gpa, u64, u64) {
    let slot = 1 + random.below(SLOTS.into()) as u16;
    let first = random.below(PAGES);
    let pages = 1 + random.below(PAGES - first);
    let start = place(slot, random.below(PLACES)).get() + first * PAGE_SIZE;
    (Gpa::new(start), pages * PAGE_SIZE, value(slot))
}

/// What is read where no slot is now, so that a guest does not take it for a mistake.
pub(crate) fn value_at(gpa: Gpa) -> u64 {
    value((gpa.get() >> 32) as u16)
}

fn place(slot: u16, place: u64) -> Gpa {
    Gpa::new((u64::from(slot) << 32) + (place << 24))
}

fn value(slot: u16) -> u64 {
    0x5107_0000 + u64::from(slot)
}

/// Creates, moves, logs and deletes slots until the storm is over, and then deletes them all.
pub(crate) fn change(storm: &Storm, random: &mut Random) {
    let mut slots: Vec<Option<(Region<Hva>, HostMemory)>> = (0..SLOTS).map(|_| None).collect();
    while !storm.tally.is_over() {
        let index = random.below(SLOTS.into()) as u16;
        let entry = &mut slots[usize::from(index)];
        let Some((region, _)) = entry else {
            *entry = Some(create(storm, index + 1, random));
            continue;
        };
        match random.below(3) {
            0 => {
                let (region, memory) = entry.take().expect("there is a slot");
                delete(storm, region, memory);
            }
            1 => {
                region.gpa = other_place(index + 1, region.gpa);
                storm.vm.set_memory_region(region).unwrap();
                storm.tally.add(What::SlotMoved, 1);
            }
            _ => {
                region.flags ^= Flags::LOG_DIRTY_PAGES;
                storm.vm.set_memory_region(region).unwrap();
                storm.tally.add(What::LogSwitched, 1);
            }
        }
    }
    for (region, memory) in slots.into_iter().flatten() {
        delete(storm, region, memory);
    }
}

fn create(storm: &Storm, slot: u16, random: &mut Random) -> (Region<Hva>, HostMemory) {
    let memory = storm.machine.map(PAGES * PAGE_SIZE).unwrap();
    for page in 0..PAGES {
        memory.write_u64(page * PAGE_SIZE, value(slot));
    }
    let flags = if random.once_in(2) { Flags::LOG_DIRTY_PAGES } else { Flags::empty() };
    let gpa = place(slot, random.below(PLACES));
    let region = Region { flags, ..memory.region(SlotId::main(slot), gpa) };
    storm.vm.set_memory_region(&region).unwrap();
    storm.tally.add(What::SlotCreated, 1);
    (region, memory)
}

fn other_place(slot: u16, gpa: Gpa) -> Gpa {
    if gpa == place(slot, 0) { place(slot, 1) } else { place(slot, 0) }
}

fn delete(storm: &Storm, region: Region<Hva>, memory: HostMemory) {
    storm.vm.set_memory_region(&Region { size: 0, ..region }).unwrap();
    drop(memory);
    storm.tally.add(What::SlotDeleted, 1);
}
