//! A guest whose disk and console have work without an end: it reads the disk in large requests, and prints while it
//! waits for them (virtio 1.2, 2.7, 4.2 and 5.2).

use core::ptr::with_exposed_provenance;

use super::devices::{say, say_number, set};

const DISK: usize = 0x0a00_0200;
/// Descriptors of the queue, and requests, which take three each.
const SIZE: u16 = 32;
const REQUESTS: u16 = 10;
const DATA_BYTES: usize = 0x1_0000;

/// What the disk and the guest share: the three rings, and what all requests read into.
#[repr(C, align(4096))]
struct Shared {
    /// Each has an address, then a length, flags and the number of the next one.
    descriptors: [[u64; 2]; SIZE as usize],
    available: Available,
    used: Used,
    /// To read, from sector 0 on.
    header: [u64; 2],
    status: u8,
    data: [u8; DATA_BYTES],
}

#[repr(C)]
struct Available {
    flags: u16,
    index: u16,
    heads: [u16; SIZE as usize],
}

#[repr(C, align(8))]
struct Used {
    flags: u16,
    index: u16,
    requests: [u64; SIZE as usize],
}

const NEXT: u64 = 1;
const WRITES: u64 = 2;

/// Reads without an end.
pub(super) fn read() -> ! {
    static mut SHARED: Shared = Shared {
        descriptors: [[0; 2]; SIZE as usize],
        available: Available { flags: 0, index: 0, heads: [0; SIZE as usize] },
        used: Used { flags: 0, index: 0, requests: [0; SIZE as usize] },
        header: [0; 2],
        status: 0,
        data: [0; DATA_BYTES],
    };
    // Volatile below, as the disk reads and writes it, too.
    let shared = &raw mut SHARED;
    // SAFETY: one vCPU has this; places in what it shares with the disk.
    let (descriptors, available, used, header, status, data) = unsafe {
        (
            (&raw mut (*shared).descriptors).cast::<[u64; 2]>(),
            &raw mut (*shared).available,
            &raw const (*shared).used.index,
            &raw const (*shared).header,
            &raw mut (*shared).status,
            &raw const (*shared).data,
        )
    };
    for request in 0..REQUESTS {
        let first = 3 * request;
        let parts = [
            (header.addr(), 16, NEXT),
            (data.addr(), DATA_BYTES, NEXT | WRITES),
            (status.addr(), 1, WRITES),
        ];
        for (number, (address, bytes, flags)) in (first..).zip(parts) {
            let rest = bytes as u64 | flags << 32 | u64::from(number + 1) << 48;
            // SAFETY: there are as many.
            unsafe {
                descriptors.add(number.into()).write_volatile([address as u64, rest]);
            }
        }
    }
    begin(descriptors.addr(), available.addr(), used.addr() - 2);
    let (mut index, mut total) = (0_u16, 0);
    loop {
        for request in 0..REQUESTS {
            let place = usize::from(index.wrapping_add(request) % SIZE);
            // SAFETY: as above.
            unsafe { (&raw mut (*available).heads[place]).write_volatile(3 * request) };
        }
        index = index.wrapping_add(REQUESTS);
        // SAFETY: as above. The guest's MMU is off, so its writes are in order.
        unsafe {
            status.write_volatile(0xff);
            (&raw mut (*available).index).write_volatile(index);
        }
        set(DISK + 0x50, 0);
        // SAFETY: as above.
        while unsafe { used.read_volatile() } != index {
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

/// Has the disk begin, with its rings at these addresses.
fn begin(descriptors: usize, available: usize, used: usize) {
    // SAFETY: a register of the disk's, or of no device.
    let kind = unsafe { with_exposed_provenance::<u32>(DISK + 8).read_volatile() };
    if kind != 2 {
        say("guest: FAILED: there is no disk\r\n");
    }
    for status in [0, 1, 3] {
        set(DISK + 0x70, status);
    }
    for (word, features) in [(0, 0), (1, 1)] {
        set(DISK + 0x24, word);
        set(DISK + 0x20, features);
    }
    set(DISK + 0x70, 11);
    set(DISK + 0x30, 0);
    set(DISK + 0x38, SIZE.into());
    for (offset, address) in [(0x80, descriptors), (0x90, available), (0xa0, used)] {
        set(DISK + offset, address as u32);
        set(DISK + offset + 4, (address >> 32) as u32);
    }
    set(DISK + 0x44, 1);
    set(DISK + 0x70, 15);
}
