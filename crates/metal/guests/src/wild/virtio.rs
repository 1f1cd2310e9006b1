//! A driver of a virtio device that does as it likes: mostly as the specification says (virtio 1.2, 2.7 and 4.2), so that
//! what is wrong is found late.

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::random::Random;

/// Descriptors of a queue.
pub(super) const SIZE: u64 = 16;
/// The most queues of a device.
const QUEUES: usize = 3;
/// What a descriptor says: another follows, and the device writes there.
pub(super) const NEXT: u64 = 1;
pub(super) const WRITES: u64 = 2;
/// `VIRTIO_F_INDIRECT_DESC` and `VIRTIO_F_EVENT_IDX`, which a driver may leave.
const RINGS: u64 = 0x3000_0000;

/// A buffer of a chain.
#[derive(Clone, Copy, Default)]
pub(super) struct Buffer {
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) flags: u64,
}

/// Memory that nothing else is in.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) start: u64,
    pub(super) bytes: u64,
}

impl Memory {
    /// A place of it, with room behind.
    pub(super) fn place(self, random: &mut Random) -> u64 {
        self.start + (random.below(self.bytes - 0x2_0000) & !0xf)
    }
}

/// A device, and what is known of it.
pub(super) struct Device {
    pub(super) name: &'static str,
    /// Where its registers are, behind those of the first device.
    offset: u64,
    queues: u64,
    /// How many descriptors a chain has, mostly.
    chain: u64,
    /// Describes the buffers of a queue.
    describe: fn(&mut Random, u64, Memory) -> [Buffer; SIZE as usize],
    /// How many chains have been made available of each queue.
    available: [AtomicU16; QUEUES],
    said: AtomicU64,
}

impl Device {
    pub(super) const fn new(
        name: &'static str,
        offset: u64,
        queues: u64,
        chain: u64,
        describe: fn(&mut Random, u64, Memory) -> [Buffer; SIZE as usize],
    ) -> Self {
        let available = [const { AtomicU16::new(0) }; QUEUES];
        Self { name, offset, queues, chain, describe, available, said: AtomicU64::new(0) }
    }

    /// Drives it, where the first device's registers are at `first`, with rings at `rings`, and buffers in `memory`.
    pub(super) fn drive(&self, random: &mut Random, first: u64, rings: u64, memory: Memory) {
        let registers = Registers(first + self.offset);
        if random.once_in(8) {
            self.begin(random, registers, rings);
        }
        for queue in 0..self.queues {
            let rings = rings + 0x1_0000 * queue;
            for (index, buffer) in (0..).zip((self.describe)(random, queue, memory)) {
                let (address, len) = (wild(random, buffer.address), wild(random, buffer.len));
                let (flags, next) = (wild(random, buffer.flags), wild(random, (index + 1) % SIZE));
                store(rings + 16 * index, address);
                let rest = len & 0xffff_ffff | (flags & 0xffff) << 32 | next << 48;
                store(rings + 16 * index + 8, rest);
            }
            for place in 0..SIZE / 4 {
                let mut head = || self.chain * random.below(SIZE / self.chain);
                let heads = head() | head() << 16 | head() << 32 | head() << 48;
                store(rings + 0x4004 + 8 * place, wild(random, heads));
            }
            let more = random.below(SIZE / 2);
            let available = &self.available[queue as usize];
            let available = available.fetch_add(more as u16, Ordering::Relaxed);
            offer(rings, wild(random, u64::from(available) + more));
            registers.set(0x50, wild(random, queue));
        }
        registers.set(0x64, random.next());
    }

    /// Begins anew, mostly as a driver does.
    fn begin(&self, random: &mut Random, registers: Registers, rings: u64) {
        for status in [0, 1, 3] {
            registers.set(0x70, wild(random, status));
        }
        registers.set(0x14, 0);
        let left = if random.once_in(8) { random.next() } else { random.next() & RINGS };
        for (word, value) in [(0, registers.get(0x10) & !left), (1, wild(random, 1))] {
            registers.set(0x24, word);
            registers.set(0x20, value);
        }
        registers.set(0x70, wild(random, 11));
        for queue in 0..self.queues {
            let rings = rings + 0x1_0000 * queue;
            registers.set(0x30, wild(random, queue));
            registers.set(0x38, wild(random, SIZE));
            for (offset, ring) in [(0x80, 0), (0x90, 0x4000), (0xa0, 0x8000)] {
                let address = wild(random, rings + ring);
                registers.set(offset, address);
                registers.set(offset + 4, address >> 32);
            }
            self.available[queue as usize].store(0, Ordering::Relaxed);
            offer(rings, 0);
            registers.set(0x44, 1);
        }
        registers.set(0x70, wild(random, 15));
    }

    /// How many chains of all queues the device has used, whenever they are twice as many.
    pub(super) fn news(&self, rings: u64) -> Option<u64> {
        let used = |queue: u64| {
            let at = rings + 0x1_0000 * queue + 0x8002;
            // SAFETY: memory that nothing else is in.
            u64::from(unsafe { with_exposed_provenance::<u16>(at as usize).read_volatile() })
        };
        let used: u64 = (0..self.queues).map(used).sum();
        let is_news = used > 2 * self.said.load(Ordering::Relaxed);
        if is_news {
            self.said.store(used, Ordering::Relaxed);
        }
        is_news.then_some(used)
    }
}

/// The registers of a device, from that address on.
#[derive(Clone, Copy)]
struct Registers(u64);

impl Registers {
    fn set(self, offset: u64, value: u64) {
        let at = (self.0 + offset) as usize;
        // SAFETY: a register of a device's, or none.
        unsafe { with_exposed_provenance_mut::<u32>(at).write_volatile(value as u32) };
    }

    fn get(self, offset: u64) -> u64 {
        let at = (self.0 + offset) as usize;
        // SAFETY: a register of a device's, or none.
        unsafe { with_exposed_provenance::<u32>(at).read_volatile() }.into()
    }
}

/// Says which chains are available.
fn offer(rings: u64, index: u64) {
    // SAFETY: memory that nothing else is in.
    unsafe {
        with_exposed_provenance_mut::<u16>(rings as usize + 0x4002).write_volatile(index as u16);
    };
}

/// `value`, or now and then anything.
pub(super) fn wild(random: &mut Random, value: u64) -> u64 {
    if random.once_in(512) { random.next() >> random.below(64) } else { value }
}

pub(super) fn store(at: u64, value: u64) {
    // SAFETY: memory that nothing else is in.
    unsafe { with_exposed_provenance_mut::<u64>(at as usize).write_volatile(value) };
}
