//! A driver of the balloon (virtio 1.2, 5.5), which has one request under way at a time.

use crate::machine::{load, sleep, store};

const BALLOON: u64 = 0x0a00_0800;
/// Rings and lists are here, 64 KiB a queue.
const RINGS: u64 = 0x4020_0000;
const SIZE: u32 = 64;
/// `VIRTIO_F_VERSION_1`, and what it reports free pages by.
const FEATURES: u64 = 1 << 32 | 1 << 5;

const NEXT: u64 = 1 << 32;
const WRITE: u64 = 2 << 32;

/// The queues.
pub(crate) const INFLATE: u64 = 0;
pub(crate) const DEFLATE: u64 = 1;
pub(crate) const REPORT: u64 = 2;

/// What the driver has made available of each queue.
#[derive(Clone, Copy, Default)]
pub(crate) struct Balloon {
    available: [u16; 3],
}

fn get(offset: u64) -> u32 {
    load(BALLOON + offset)
}

fn set(offset: u64, value: u32) {
    store(BALLOON + offset, value);
}

const fn rings(queue: u64) -> u64 {
    RINGS + 0x1_0000 * queue
}

impl Balloon {
    /// Begins. `None` if there is no balloon.
    pub(crate) fn begin() -> Option<Self> {
        if [0, 4, 8].map(get) != [0x7472_6976, 2, 5] {
            return None;
        }
        for status in [0, 1, 3] {
            set(0x70, status);
        }
        for word in 0..2 {
            set(0x24, word);
            set(0x20, (FEATURES >> (32 * word)) as u32);
        }
        set(0x70, 11);
        for queue in 0..3 {
            set(0x30, queue as u32);
            set(0x38, SIZE);
            for (offset, part) in [(0x80, 0), (0x90, 0x2000), (0xa0, 0x3000)] {
                set(offset, (rings(queue) + part) as u32);
                set(offset + 4, 0);
            }
            set(0x44, 1);
        }
        set(0x70, 15);
        (get(0x70) == 15).then(Self::default)
    }

    /// Gives a chain of these pieces to a queue, and waits until it is given back.
    fn request(&mut self, queue: u64, pieces: impl Iterator<Item = (u64, u64)>) {
        let rings = rings(queue);
        let flags = if queue == REPORT { WRITE } else { 0 };
        let mut count = 0;
        for (address, bytes) in pieces {
            let at = rings + 16 * count;
            store(at, address);
            store(at + 8, bytes | flags | NEXT | (count + 1) << 48);
            count += 1;
        }
        let last = rings + 16 * (count - 1) + 8;
        store(last, load::<u64>(last) & !NEXT);
        let available = &mut self.available[queue as usize];
        store(rings + 0x2004 + 2 * (u64::from(*available) % u64::from(SIZE)), 0_u16);
        *available = available.wrapping_add(1);
        store(rings + 0x2002, *available);
        set(0x50, queue as u32);
        while load::<u16>(rings + 0x3002) != *available {
            assert!(get(0x70) == 15, "the device asks for its reset");
            sleep(20);
        }
        set(0x64, get(0x60));
    }

    /// Reports these pieces of memory, by their addresses and bytes: as many as a queue has descriptors at most.
    pub(crate) fn report(&mut self, pieces: impl Iterator<Item = (u64, u64)>) {
        self.request(REPORT, pieces);
    }

    /// Puts pages into the balloon, or takes them out of it.
    pub(crate) fn name(&mut self, queue: u64, pages: impl Iterator<Item = u32>) {
        let list = rings(queue) + 0x8000;
        let mut bytes = 0;
        for page in pages {
            store(list + bytes, page);
            bytes += 4;
        }
        self.request(queue, [(list, bytes)].into_iter());
    }
}
