//! A guest whose disk and console have work without an end: it reads the disk in large requests, and prints while it
//! waits for them (virtio 1.2, 5.2).

use super::devices::{say, say_number};
use super::queue::{NEXT, Queue, Rings, WRITES};

const DISK: usize = 0x0a00_0200;
/// Requests, which take three descriptors each.
const REQUESTS: u16 = 10;
const DATA_BYTES: usize = 0x1_0000;

/// What all requests have.
#[repr(C, align(4096))]
struct Shared {
    /// To read, from sector 0 on.
    header: [u64; 2],
    status: u8,
    data: [u8; DATA_BYTES],
}

/// Reads without an end, if there is a disk.
pub(super) fn read() {
    static mut RINGS: Rings = Rings::new();
    static mut SHARED: Shared = Shared { header: [0; 2], status: 0, data: [0; DATA_BYTES] };
    let shared = &raw mut SHARED;
    // SAFETY: one vCPU has this; places in what it shares with the disk.
    let (header, status, data) = unsafe {
        (&raw const (*shared).header, &raw mut (*shared).status, &raw const (*shared).data)
    };
    // SAFETY: as above.
    let queue = unsafe { Queue::begin(DISK, 2, 0, &raw mut RINGS, |_| Some(0)) };
    let Some(mut queue) = queue else {
        return say("guest: FAILED: there is no disk\r\n");
    };
    for request in 0..REQUESTS {
        let parts = [
            (header.addr(), 16, NEXT),
            (data.addr(), DATA_BYTES, NEXT | WRITES),
            (status.addr(), 1, WRITES),
        ];
        (3 * request..).zip(parts).for_each(|(place, part)| queue.describe(place, part));
    }
    let mut total = 0;
    loop {
        // SAFETY: as above. Volatile, as the disk writes it, too.
        unsafe { status.write_volatile(0xff) };
        queue.offer((0..REQUESTS).map(|request| 3 * request));
        while !queue.is_done() {
            say("guest: waits for its disk\r\n");
        }
        // SAFETY: as above.
        if unsafe { status.read_volatile() } != 0 {
            say("guest: FAILED: the disk cannot be read\r\n");
        }
        total += u64::from(REQUESTS) * DATA_BYTES as u64;
        say("guest: has read ");
        say_number(total >> 10);
        say(" KiB\r\n");
    }
}
