//! The virtio devices of a guest, and what it asks of each. Their registers follow each other in the same order on each architecture.

use super::random::Random;
use super::virtio::{Buffer, Device, Memory, NEXT, SIZE, WRITES, store, wild};

/// The card's address, as the test gives it to this guest.
const MAC: u64 = 0x0f00_0000_5452;
/// Sectors that requests to the disk are of, a few more than the test's disk has.
const SECTORS: u64 = 17 << 10;

static CARD: Device = Device::new("card", 0x0400, 3, 1, frames);
static DISK: Device = Device::new("disk", 0x0200, 1, 3, requests);
static CONSOLE: Device = Device::new("console", 0x0600, 2, 1, output);
static ENTROPY: Device = Device::new("entropy", 0x0000, 1, 1, room);
static BALLOON: Device = Device::new("balloon", 0x0800, 3, 1, pages);

/// Drives one of them, where the first one's registers are at `first`, with rings and buffers in the `bytes` bytes of memory at
/// `start`. Which one, and how many chains it has used, whenever they are twice as many.
///
/// # Safety
///
/// Nothing else is in that memory, and what devices do by it is right to the caller.
pub unsafe fn drive(
    random: &mut Random,
    first: u64,
    start: u64,
    bytes: u64,
) -> Option<(&'static str, u64)> {
    let (device, rings) = match random.below(10) {
        0..=2 => (&CARD, 0),
        3..=5 => (&DISK, 0x10_0000),
        6 => (&CONSOLE, 0x12_0000),
        7 => (&ENTROPY, 0x14_0000),
        _ => (&BALLOON, 0x16_0000),
    };
    let memory = Memory { start: start + 0x20_0000, bytes: bytes - 0x20_0000 };
    (0..16).for_each(|_| device.drive(random, first, start + rings, memory));
    Some((device.name, device.news(start + rings)?))
}

/// One buffer after the other, each a chain or with the next ones.
fn buffers(
    random: &mut Random,
    memory: Memory,
    flags: u64,
    mut len: impl FnMut(&mut Random) -> u64,
) -> [Buffer; SIZE as usize] {
    core::array::from_fn(|_| {
        let (address, more) = (memory.place(random), random.below(2) * NEXT);
        Buffer { address, len: len(random), flags: flags | more }
    })
}

/// What the card receives has room, and what it sends and is told (virtio 1.2, 5.1) begins as a frame.
fn frames(random: &mut Random, queue: u64, memory: Memory) -> [Buffer; SIZE as usize] {
    let writes = u64::from(queue == 0) * WRITES;
    let all = buffers(random, memory, writes, |random| {
        if random.once_in(4) { random.below(0x1_0000) } else { 26 + random.below(1500) }
    });
    for buffer in &all {
        header(random, buffer.address);
    }
    all
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

/// Requests to the disk (virtio 1.2, 5.2.6): what is asked, data, and room for the answer.
fn requests(random: &mut Random, _: u64, memory: Memory) -> [Buffer; SIZE as usize] {
    let mut all = [Buffer::default(); SIZE as usize];
    for chain in all.chunks_exact_mut(3) {
        let (read, write, flush, id, discard, zero) = (0, 1, 4, 8, 11, 13);
        let kinds = [read, read, write, write, flush, id, discard, zero];
        let kind = random.one_of(&kinds);
        let sectors = 1 + random.below(64);
        let (first, last) = (random.below(SECTORS), 4 * random.below(SECTORS));
        let (asked, data) = (memory.place(random), memory.place(random));
        store(asked, wild(random, kind));
        store(asked + 8, wild(random, first));
        if kind == discard || kind == zero {
            // Of a range of sectors, which may be a large part of the disk.
            store(data, wild(random, first));
            let count = if random.once_in(4) { last } else { sectors };
            let range = count | random.below(2) << 32;
            store(data + 8, wild(random, range));
        }
        let (len, writes) = match kind {
            _ if kind == read => (512 * sectors, WRITES),
            _ if kind == write => (512 * sectors, 0),
            _ if kind == id => (20, WRITES),
            _ => (16, 0),
        };
        let answer = Buffer { address: memory.place(random), len: 1, flags: WRITES };
        // A flush has no data.
        let data = if kind == flush {
            answer
        } else {
            Buffer { address: data, len, flags: writes | NEXT }
        };
        chain.copy_from_slice(&[Buffer { address: asked, len: 16, flags: NEXT }, data, answer]);
    }
    all
}

/// What the console prints is short, so that what this guest says is not lost among it.
fn output(random: &mut Random, queue: u64, memory: Memory) -> [Buffer; SIZE as usize] {
    let writes = u64::from(queue == 0) * WRITES;
    buffers(random, memory, writes, |random| 1 + random.below(4))
}

/// Room for random numbers.
fn room(random: &mut Random, _: u64, memory: Memory) -> [Buffer; SIZE as usize] {
    buffers(random, memory, WRITES, |random| random.below(1000))
}

/// What is given back, and taken again, by the numbers of pages in a buffer (virtio 1.2, 5.5), of which some follow each other;
/// and memory that is reported, whose contents do not matter.
fn pages(random: &mut Random, queue: u64, memory: Memory) -> [Buffer; SIZE as usize] {
    if queue == 2 {
        return buffers(random, memory, WRITES, |random| random.below(0x2_0000));
    }
    let all = buffers(random, memory, 0, |random| 4 * random.below(33));
    for buffer in &all {
        let mut page = memory.place(random) >> 12;
        for place in 0..16 {
            page = if random.once_in(4) { memory.place(random) >> 12 } else { page + 2 };
            let (first, second) = (wild(random, page), wild(random, page + 1));
            store(buffer.address + 8 * place, first & 0xffff_ffff | second << 32);
        }
    }
    all
}
