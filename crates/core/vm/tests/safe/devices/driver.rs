//! What drivers do.

use mayfly_devices::line;
use mayfly_devices::memory::GuestMemory;
use mayfly_devices::virtio::{Device, Mmio, Served};

use super::guest::{AVAILABLE, BASE, SIZE, Shared, USED};

/// Registers of a virtio device, by their offsets.
const SELECT: u64 = 0x30;
const STATUS: u64 = 0x70;

pub(super) fn access<D: Device>(of: &mut Mmio<D>, offset: u64, data: &mut [u8], writes: bool) {
    if writes {
        let _ = of.write(offset, data);
    } else {
        of.read(offset, data);
    }
}

/// A driver's way from reset to work.
pub(super) fn start<D: Device>(of: &mut Mmio<D>, features: u64, memory: &Shared<'_>) {
    for ring in [AVAILABLE, USED] {
        memory.write(ring, &[0; 4]).unwrap();
    }
    let mut set = |offset, value: u32| of.write(offset, &value.to_le_bytes());
    for status in [0, 1, 3] {
        set(STATUS, status);
    }
    for word in 0..2_u32 {
        set(0x24, word);
        set(0x20, (features >> (32 * word)) as u32);
    }
    set(STATUS, 0xb);
    // Those that there are, over one ring.
    for queue in 0..3 {
        set(SELECT, queue);
        set(0x38, SIZE.into());
        for (offset, address) in [(0x80, BASE), (0x90, AVAILABLE), (0xa0, USED)] {
            set(offset, address as u32);
            set(offset + 4, (address >> 32) as u32);
        }
        set(0x44, 1);
    }
    set(STATUS, 0xf);
}

pub(super) fn serve<D: Device>(of: &mut Mmio<D>, times: usize, memory: &Shared<'_>) {
    for _ in 0..times {
        if of.serve(memory) == Served::Nothing {
            break;
        }
    }
    // Its line is settled, however often its level changes meanwhile.
    let changes = std::cell::Cell::new(3_u32);
    let level = || {
        changes.set(changes.get().saturating_sub(1));
        of.interrupt() ^ !changes.get().is_multiple_of(2)
    };
    line::settle(level, |_| ());
    changes.set(3);
    line::fall(level, |_| ());
    let _ = of.is_broken();
}

/// Puts descriptors in place, from the first on, and makes those of `heads` available.
pub(super) fn offer(memory: &Shared<'_>, descriptors: &[(u64, u32, u16, u16)], heads: &[u16]) {
    for (at, (address, len, flags, next)) in (0_u64..).zip(descriptors) {
        let bytes = [
            &address.to_le_bytes()[..],
            &len.to_le_bytes(),
            &flags.to_le_bytes(),
            &next.to_le_bytes(),
        ];
        memory.write(BASE + 16 * at, &bytes.concat()).unwrap();
    }
    for head in heads {
        let index = memory.load_acquire(AVAILABLE + 2).unwrap();
        memory.write(AVAILABLE + 4 + 2 * u64::from(index % SIZE), &head.to_le_bytes()).unwrap();
        memory.store_release(AVAILABLE + 2, index.wrapping_add(1)).unwrap();
    }
}
