//! The driver of the guest's disk (virtio 1.2, 2.7, 4.2 and 5.2). It waits in a loop.

use core::hint::spin_loop;

use super::machine::{get, set};
use super::record::{Record, SECTORS, SLOTS, Sector, WORDS};

const DISK: usize = 0x0a00_0200;
/// Requests that are under way at most. Each has three descriptors.
pub(super) const REQUESTS: usize = 8;
const SIZE: usize = 32;
const FLUSH: u32 = 1 << 9;
const DISCARD: u32 = 1 << 13;
const ZEROES: u32 = 1 << 14;

const NEXT: u64 = 1;
const WRITES: u64 = 2;

/// What a request is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read = 0,
    Write = 1,
    /// The first sector alone.
    WriteFirst = 0x101,
    Flush = 4,
    Discard = 11,
    Zero = 13,
}

#[repr(C)]
struct Available {
    flags: u16,
    index: u16,
    heads: [u16; SIZE],
}

#[repr(C, align(8))]
struct Used {
    flags: u16,
    index: u16,
    requests: [u64; SIZE],
}

/// What the disk and the guest share.
#[repr(C, align(4096))]
struct Shared {
    /// Each has an address, then a length, flags and the number of the next one.
    descriptors: [[u64; 2]; SIZE],
    available: Available,
    used: Used,
    headers: [[u64; 2]; REQUESTS],
    /// What is cleared: the first sector, and how many.
    ranges: [[u64; 2]; REQUESTS],
    statuses: [u8; REQUESTS],
    data: [Record; REQUESTS],
}

static mut SHARED: Shared = Shared {
    descriptors: [[0; 2]; SIZE],
    available: Available { flags: 0, index: 0, heads: [0; SIZE] },
    used: Used { flags: 0, index: 0, requests: [0; SIZE] },
    headers: [[0; 2]; REQUESTS],
    ranges: [[0; 2]; REQUESTS],
    statuses: [0; REQUESTS],
    data: [[[0; WORDS]; SECTORS]; REQUESTS],
};

/// The disk has not carried out a request, or has no such features.
#[derive(Debug)]
pub(super) struct Failed;

/// The disk, of which there is one.
pub(super) struct Disk {
    shared: *mut Shared,
    index: u16,
    under_way: usize,
    /// It knows discards.
    pub(super) discards: bool,
}

impl Disk {
    /// Starts it. With `flushes`, the guest tells it when to keep what was written. It has to know zeroes.
    pub(super) fn start(flushes: bool) -> Result<Self, Failed> {
        let shared = &raw mut SHARED;
        if get(DISK + 8) != 2 {
            return Err(Failed);
        }
        for status in [0, 1, 3] {
            set(DISK + 0x70, status);
        }
        set(DISK + 0x14, 0);
        let offered = get(DISK + 0x10);
        if offered & FLUSH == 0 || offered & ZEROES == 0 {
            return Err(Failed);
        }
        let taken = offered & (DISCARD | ZEROES) | if flushes { FLUSH } else { 0 };
        for (word, features) in [(0, taken), (1, 1)] {
            set(DISK + 0x24, word);
            set(DISK + 0x20, features);
        }
        set(DISK + 0x70, 11);
        set(DISK + 0x30, 0);
        set(DISK + 0x38, SIZE as u32);
        // SAFETY: places in what is shared.
        let rings = unsafe {
            [
                (&raw const (*shared).descriptors).addr(),
                (&raw const (*shared).available).addr(),
                (&raw const (*shared).used).addr(),
            ]
        };
        for (offset, address) in [0x80, 0x90, 0xa0].into_iter().zip(rings) {
            set(DISK + offset, address as u32);
            set(DISK + offset + 4, (address >> 32) as u32);
        }
        set(DISK + 0x44, 1);
        set(DISK + 0x70, 15);
        Ok(Self { shared, index: 0, under_way: 0, discards: offered & DISCARD != 0 })
    }

    /// What request `request` writes, or has read.
    pub(super) fn data(&mut self, request: usize) -> &mut Record {
        assert!(self.under_way == 0 && request < REQUESTS);
        // SAFETY: the disk has nothing, so this is the only way to it.
        unsafe { &mut (*self.shared).data[request] }
    }

    /// Makes a request of one slot, or of the unused sectors behind the last; the next of those that are under way together.
    pub(super) fn ask(&mut self, kind: Kind, slot: u64) {
        let (request, shared) = (self.under_way, self.shared);
        assert!(request < REQUESTS && slot <= SLOTS);
        // SAFETY: places in what is shared.
        let (descriptors, heads, header, range, status, data) = unsafe {
            (
                (&raw mut (*shared).descriptors).cast::<[u64; 2]>(),
                (&raw mut (*shared).available.heads).cast::<u16>(),
                &raw mut (*shared).headers[request],
                &raw mut (*shared).ranges[request],
                &raw mut (*shared).statuses[request],
                &raw const (*shared).data[request],
            )
        };
        let first = 3 * request;
        let last = (status.addr(), 1, WRITES);
        let whole = size_of::<Record>();
        let parts = [
            (header.addr(), 16, NEXT),
            match kind {
                Kind::Read => (data.addr(), whole, NEXT | WRITES),
                Kind::Write => (data.addr(), whole, NEXT),
                Kind::WriteFirst => (data.addr(), size_of::<Sector>(), NEXT),
                Kind::Flush => last,
                Kind::Discard | Kind::Zero => (range.addr(), 16, NEXT),
            },
            last,
        ];
        let sector = slot * SECTORS as u64;
        // SAFETY: there are as many; the disk does not have them.
        unsafe {
            header.write_volatile([kind as u64 & 0xff, sector]);
            range.write_volatile([sector, SECTORS as u64]);
            status.write_volatile(u8::MAX);
            for (number, (address, bytes, flags)) in (first..).zip(parts) {
                let rest = bytes as u64 | flags << 32 | (number as u64 + 1) << 48;
                descriptors.add(number).write_volatile([address as u64, rest]);
            }
            heads.add(usize::from(self.index) % SIZE).write_volatile(first as u16);
        }
        self.index = self.index.wrapping_add(1);
        self.under_way += 1;
    }

    /// Has the disk begin with what was asked for, and waits until all of it has ended.
    pub(super) fn wait(&mut self) -> Result<(), Failed> {
        let shared = self.shared;
        // SAFETY: as above. The guest's MMU is off, so its accesses are in order.
        unsafe { (&raw mut (*shared).available.index).write_volatile(self.index) };
        set(DISK + 0x50, 0);
        // SAFETY: as above.
        while unsafe { (&raw const (*shared).used.index).read_volatile() } != self.index {
            spin_loop();
        }
        set(DISK + 0x64, get(DISK + 0x60));
        let mut all = 0..self.under_way;
        self.under_way = 0;
        // SAFETY: as above.
        let is_well = all.all(|request| unsafe {
            (&raw const (*shared).statuses[request]).read_volatile() == 0
        });
        if is_well { Ok(()) } else { Err(Failed) }
    }
}
