//! The driver of the guest's disk (virtio 1.2, 5.2). It waits in a loop.

use core::hint::spin_loop;

use super::machine::{get, set};
use super::queue::{NEXT, Queue, Rings, WRITES};
use super::record::{Record, SECTORS, SLOTS, Sector, WORDS};

const DISK: usize = 0x0a00_0200;
/// Requests that are under way at most. Each has three descriptors.
pub(super) const REQUESTS: usize = 8;
const FLUSH: u32 = 1 << 9;
const DISCARD: u32 = 1 << 13;
const ZEROES: u32 = 1 << 14;

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

/// What the disk and the guest share beside the rings.
#[repr(C, align(4096))]
struct Shared {
    headers: [[u64; 2]; REQUESTS],
    /// What is cleared: the first sector, and how many.
    ranges: [[u64; 2]; REQUESTS],
    statuses: [u8; REQUESTS],
    data: [Record; REQUESTS],
}

static mut SHARED: Shared = Shared {
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
    queue: Queue,
    under_way: usize,
    /// It knows discards.
    pub(super) discards: bool,
}

impl Disk {
    /// Starts it. With `flushes`, the guest tells it when to keep what was written. It has to know zeroes.
    pub(super) fn start(flushes: bool) -> Result<Self, Failed> {
        static mut RINGS: Rings = Rings::new();
        let mut discards = false;
        let choose = |offered: u32| {
            if offered & FLUSH == 0 || offered & ZEROES == 0 {
                return None;
            }
            discards = offered & DISCARD != 0;
            Some(offered & (DISCARD | ZEROES) | if flushes { FLUSH } else { 0 })
        };
        // SAFETY: this is done once.
        let queue = unsafe { Queue::begin(DISK, 2, 0, &raw mut RINGS, choose) }.ok_or(Failed)?;
        Ok(Self { shared: &raw mut SHARED, queue, under_way: 0, discards })
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
        let (header, range, status, data) = unsafe {
            (
                &raw mut (*shared).headers[request],
                &raw mut (*shared).ranges[request],
                &raw mut (*shared).statuses[request],
                &raw const (*shared).data[request],
            )
        };
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
        // SAFETY: the disk does not have them.
        unsafe {
            header.write_volatile([kind as u64 & 0xff, sector]);
            range.write_volatile([sector, SECTORS as u64]);
            status.write_volatile(u8::MAX);
        }
        for (place, part) in (first(request)..).zip(parts) {
            self.queue.describe(place, part);
        }
        self.under_way += 1;
    }

    /// Has the disk begin with what was asked for, and waits until all of it has ended.
    pub(super) fn wait(&mut self) -> Result<(), Failed> {
        let shared = self.shared;
        self.queue.offer((0..self.under_way).map(first));
        while !self.queue.is_done() {
            spin_loop();
        }
        set(DISK + 0x64, get(DISK + 0x60));
        let mut all = 0..self.under_way;
        self.under_way = 0;
        // SAFETY: places in what is shared.
        let is_well = all.all(|request| unsafe {
            (&raw const (*shared).statuses[request]).read_volatile() == 0
        });
        if is_well { Ok(()) } else { Err(Failed) }
    }
}

/// Where the descriptors of a request begin.
fn first(request: usize) -> u16 {
    3 * request as u16
}
