//! A queue of a virtio device of a guest (virtio 1.2, 2.7 and 4.2). One vCPU has it. Guests whose drivers do as they should
//! share it.

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// Descriptors of a queue.
pub(crate) const SIZE: u16 = 256;

/// A descriptor's flags: another follows, and the device writes there.
pub(crate) const NEXT: u64 = 1;
pub(crate) const WRITES: u64 = 2;

/// What the device and the guest share: the three rings.
#[repr(C, align(4096))]
pub(crate) struct Rings {
    /// Each has an address, then a length, flags and the number of the next one.
    descriptors: [[u64; 2]; SIZE as usize],
    available: Available,
    used: Used,
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
    chains: [u64; SIZE as usize],
}

impl Rings {
    pub(crate) const fn new() -> Self {
        Self {
            descriptors: [[0; 2]; SIZE as usize],
            available: Available { flags: 0, index: 0, heads: [0; SIZE as usize] },
            used: Used { flags: 0, index: 0, chains: [0; SIZE as usize] },
        }
    }
}

/// A queue that is on. The device reads and writes its rings, too, so all accesses to them are volatile.
pub(crate) struct Queue {
    rings: *mut Rings,
    registers: usize,
    number: u32,
    index: u16,
}

impl Queue {
    /// Has the device at `registers` begin with this queue, if it is of that kind. Of the features that it offers, those of its
    /// kind and of rings, `choose` says which are taken; if it says nothing, the device does not begin.
    ///
    /// # Safety
    ///
    /// Nothing else uses the rings any more.
    pub(crate) unsafe fn begin(
        registers: usize,
        kind: u32,
        number: u32,
        rings: *mut Rings,
        choose: impl FnOnce(u32) -> Option<u32>,
    ) -> Option<Self> {
        if get(registers + 8) != kind {
            return None;
        }
        let to = |offset: usize, value: u32| set(registers + offset, value);
        for status in [0, 1, 3] {
            to(0x70, status);
        }
        to(0x14, 0);
        let taken = choose(get(registers + 0x10))?;
        for (word, features) in [(0, taken), (1, 1)] {
            to(0x24, word);
            to(0x20, features);
        }
        to(0x70, 11);
        to(0x30, number);
        to(0x38, SIZE.into());
        // SAFETY: places in the rings.
        let parts = unsafe {
            [
                (0x80, (&raw const (*rings).descriptors).addr()),
                (0x90, (&raw const (*rings).available).addr()),
                (0xa0, (&raw const (*rings).used).addr()),
            ]
        };
        for (offset, address) in parts {
            to(offset, address as u32);
            to(offset + 4, (address >> 32) as u32);
        }
        to(0x44, 1);
        to(0x70, 15);
        Some(Self { rings, registers, number, index: 0 })
    }

    /// Describes a buffer, at that place of the table, which goes on at the next.
    pub(crate) fn describe(&mut self, place: u16, (address, bytes, flags): (usize, usize, u64)) {
        let rest = bytes as u64 | flags << 32 | u64::from((place + 1) % SIZE) << 48;
        let place = usize::from(place % SIZE);
        // SAFETY: as the caller of `begin` has promised; there are as many.
        unsafe {
            (&raw mut (*self.rings).descriptors[place]).write_volatile([address as u64, rest]);
        }
    }

    /// Makes chains available that begin at these places, and notifies the device.
    pub(crate) fn offer(&mut self, heads: impl Iterator<Item = u16>) {
        for head in heads {
            let place = usize::from(self.index % SIZE);
            // SAFETY: as above.
            unsafe { (&raw mut (*self.rings).available.heads[place]).write_volatile(head) };
            self.index = self.index.wrapping_add(1);
        }
        // SAFETY: as above. The guest's MMU is off, so its writes are in order.
        unsafe { (&raw mut (*self.rings).available.index).write_volatile(self.index) };
        set(self.registers + 0x50, self.number);
    }

    /// Whether the device has used all of them.
    pub(crate) fn is_done(&self) -> bool {
        // SAFETY: as above.
        unsafe { (&raw const (*self.rings).used.index).read_volatile() == self.index }
    }
}

fn get(address: usize) -> u32 {
    // SAFETY: a register of a device's, or of none.
    unsafe { with_exposed_provenance::<u32>(address).read_volatile() }
}

fn set(address: usize, value: u32) {
    // SAFETY: as above.
    unsafe { with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}
