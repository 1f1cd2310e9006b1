//! A driver of a virtio device that does as it likes: mostly as the specification says (virtio 1.2, 2.7 and 4.2), so that what
//! is wrong is found late.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU16, Ordering};

use crate::random::Random;

const SIZE: u64 = 16;

/// A device, and what its driver gives it.
pub(crate) struct Driven {
    /// Where its registers are.
    pub(crate) at: u64,
    /// What it offers of its own.
    pub(crate) features: u64,
    /// The queue of buffers that it writes to.
    pub(crate) written: u64,
    /// How many chains have been made available of each queue.
    pub(crate) available: [AtomicU16; 3],
    /// Writes what a buffer at this address has for the device, of memory from there on, with so many bytes.
    pub(crate) fill: fn(&mut Random, u64, u64, u64),
}

/// Drives a device, with rings and buffers in the `bytes` bytes of memory at `memory`.
pub(crate) fn drive(device: &Driven, random: &mut Random, memory: u64, bytes: u64) {
    if random.once_in(8) {
        begin(device, random, memory);
    }
    for queue in 0..3 {
        let rings = memory + 0x1_0000 * queue;
        // That queue gets buffers, the others have something to say.
        let writes = u64::from(queue == device.written) << 1;
        for index in 0..SIZE {
            let buffer = memory + 0x10_0000 + (random.below(bytes - 0x20_0000) & !0xf);
            (device.fill)(random, buffer, memory, bytes);
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
        let available = device.available[queue as usize].fetch_add(more as u16, Ordering::Relaxed);
        let available = wild(random, u64::from(available) + more);
        offer(rings, available);
        set(device, 0x50, wild(random, queue));
    }
    set(device, 0x64, random.next());
}

/// Begins anew, mostly as a driver does.
fn begin(device: &Driven, random: &mut Random, memory: u64) {
    for status in [0, 1, 3] {
        set(device, 0x70, wild(random, status));
    }
    let features = if random.once_in(8) {
        random.next()
    } else {
        device.features | random.next() & 0x3000_0000
    };
    for (word, value) in [(0, features), (1, wild(random, 1))] {
        set(device, 0x24, word);
        set(device, 0x20, value);
    }
    set(device, 0x70, wild(random, 11));
    for queue in 0..3 {
        let rings = memory + 0x1_0000 * queue;
        set(device, 0x30, wild(random, queue));
        set(device, 0x38, wild(random, SIZE));
        for (offset, address) in [(0x80, rings), (0x90, rings + 0x4000), (0xa0, rings + 0x8000)] {
            let address = wild(random, address);
            set(device, offset, address);
            set(device, offset + 4, address >> 32);
        }
        device.available[queue as usize].store(0, Ordering::Relaxed);
        offer(rings, 0);
        set(device, 0x44, 1);
    }
    set(device, 0x70, wild(random, 15));
}

fn wild_len(random: &mut Random) -> u64 {
    let len = if random.once_in(4) { random.below(0x1_0000) } else { 26 + random.below(1500) };
    wild(random, len)
}

/// `value`, or now and then anything.
pub(crate) fn wild(random: &mut Random, value: u64) -> u64 {
    if random.once_in(512) { random.next() >> random.below(64) } else { value }
}

/// Says which chains are available.
fn offer(rings: u64, index: u64) {
    // SAFETY: memory that nothing else is in.
    unsafe {
        with_exposed_provenance_mut::<u16>(rings as usize + 0x4002).write_volatile(index as u16);
    };
}

fn set(device: &Driven, offset: u64, value: u64) {
    // SAFETY: a register of a device's, or none.
    unsafe {
        with_exposed_provenance_mut::<u32>((device.at + offset) as usize)
            .write_volatile(value as u32);
    };
}

pub(crate) fn store(at: u64, value: u64) {
    // SAFETY: memory that nothing else is in.
    unsafe { with_exposed_provenance_mut::<u64>(at as usize).write_volatile(value) };
}
