//! A driver of the network card that does as it likes: mostly as the specification says (virtio 1.2, 2.7, 4.2 and 5.1), so
//! that what is wrong is found late.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU16, Ordering};

use crate::random::Random;

const CARD: u64 = 0x0a00_0400;
const SIZE: u64 = 16;
/// What the card offers of its own (virtio 1.2, 5.1.3).
const FEATURES: u64 = 0x0027_99a3;
/// The card's address, as the test gives it to this guest.
const MAC: u64 = 0x0f00_0000_5452;

/// How many chains have been made available of each queue.
static AVAILABLE: [AtomicU16; 3] = [const { AtomicU16::new(0) }; 3];

/// Drives the card, with rings and buffers in the `bytes` bytes of memory at `memory`.
pub(crate) fn drive(random: &mut Random, memory: u64, bytes: u64) {
    if random.once_in(8) {
        begin(random, memory);
    }
    for queue in 0..3 {
        let rings = memory + 0x1_0000 * queue;
        // The receiver gets buffers, the others have something to say.
        let writes = u64::from(queue == 0) << 1;
        for index in 0..SIZE {
            let buffer = memory + 0x10_0000 + (random.below(bytes - 0x20_0000) & !0xf);
            header(random, buffer);
            let (address, len) = (wild(random, buffer), wild_len(random));
            let flags = writes | random.below(2);
            let (flags, next) = (wild(random, flags), wild(random, (index + 1) % SIZE));
            store(rings + 16 * index, address);
            store(rings + 16 * index + 8, len & 0xffff_ffff | (flags & 0xffff) << 32 | next << 48);
        }
        for place in 0..SIZE / 4 {
            store(rings + 0x4004 + 8 * place, random.next() & 0x000f_000f_000f_000f);
        }
        let more = random.below(SIZE / 2);
        let available = AVAILABLE[queue as usize].fetch_add(more as u16, Ordering::Relaxed);
        let available = wild(random, u64::from(available) + more);
        offer(rings, available);
        set(0x50, wild(random, queue));
    }
    set(0x64, random.next());
}

/// Begins anew, mostly as a driver does.
fn begin(random: &mut Random, memory: u64) {
    for status in [0, 1, 3] {
        set(0x70, wild(random, status));
    }
    let features =
        if random.once_in(8) { random.next() } else { FEATURES | random.next() & 0x3000_0000 };
    for (word, value) in [(0, features), (1, wild(random, 1))] {
        set(0x24, word);
        set(0x20, value);
    }
    set(0x70, wild(random, 11));
    for queue in 0..3 {
        let rings = memory + 0x1_0000 * queue;
        set(0x30, wild(random, queue));
        set(0x38, wild(random, SIZE));
        for (offset, address) in [(0x80, rings), (0x90, rings + 0x4000), (0xa0, rings + 0x8000)] {
            let address = wild(random, address);
            set(offset, address);
            set(offset + 4, address >> 32);
        }
        AVAILABLE[queue as usize].store(0, Ordering::Relaxed);
        offer(rings, 0);
        set(0x44, 1);
    }
    set(0x70, wild(random, 15));
}

/// What stands before a frame, and how that begins: to all cards, from this one. In half of all, what is left to do for
/// the device may make sense.
fn header(random: &mut Random, at: u64) {
    let left = if random.once_in(2) {
        let (flags, kind) = (random.below(2), random.one_of(&[0, 0, 1, 4]));
        flags
            | kind << 8
            | random.below(100) << 16
            | random.below(1500) << 32
            | random.below(100) << 48
    } else {
        0
    };
    store(at, wild(random, left));
    store(at + 8, random.below(20) | 0xffff_ffff << 32);
    store(at + 16, wild(random, MAC << 16 | 0xffff));
    store(at + 24, random.next());
}

fn wild_len(random: &mut Random) -> u64 {
    let len = if random.once_in(4) { random.below(0x1_0000) } else { 26 + random.below(1500) };
    wild(random, len)
}

/// `value`, or now and then anything.
fn wild(random: &mut Random, value: u64) -> u64 {
    if random.once_in(512) { random.next() >> random.below(64) } else { value }
}

/// Says which chains are available.
fn offer(rings: u64, index: u64) {
    // SAFETY: memory that nothing else is in.
    unsafe {
        with_exposed_provenance_mut::<u16>(rings as usize + 0x4002).write_volatile(index as u16);
    };
}

fn set(offset: u64, value: u64) {
    // SAFETY: a register of a device's, or none.
    unsafe {
        with_exposed_provenance_mut::<u32>((CARD + offset) as usize).write_volatile(value as u32);
    };
}

fn store(at: u64, value: u64) {
    // SAFETY: memory that nothing else is in.
    unsafe { with_exposed_provenance_mut::<u64>(at as usize).write_volatile(value) };
}
