//! A driver that has several queues, of a device that takes what is in them.

use std::fmt::Debug;

use mayfly_devices::memory::GuestMemory;
use mayfly_devices::virtio::{Device, Mmio};

use crate::guest::*;
use crate::saved::{load, save};

/// Descriptors of a queue.
pub(crate) const SIZE: u16 = 16;

/// Where a queue has its parts, and its buffers.
pub(crate) fn place(queue: usize, part: u64) -> u64 {
    BASE + 0x4000 * queue as u64 + 0x1000 * part
}

pub(crate) fn buffer(queue: usize, head: u16) -> u64 {
    DATA + 0x2_0000 * queue as u64 + 0x1000 * u64::from(head)
}

/// What a driver has made available of a queue, and seen used; and its next descriptor.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ring {
    pub(crate) next: u16,
    pub(crate) available: u16,
    pub(crate) used: u16,
}

/// A driver of queues that take chains one after the other.
pub(crate) struct Guest<D> {
    pub(crate) memory: Memory,
    pub(crate) device: Mmio<D>,
    pub(crate) rings: [Ring; 3],
}

impl<D: Device> Guest<D> {
    pub(crate) fn with(device: Mmio<D>, features: u64) -> Self {
        let mut guest = Self { memory: Memory::new(), device, rings: [Ring::default(); 3] };
        guest.begin(features);
        guest
    }

    /// The driver begins anew.
    pub(crate) fn begin(&mut self, features: u64) {
        assert!(agree(&mut self.device, features));
        self.rings = [Ring::default(); 3];
        for queue in 0..3 {
            set(&mut self.device, 0x30, queue);
            if get(&self.device, 0x34) != 0 {
                self.turn_on(queue as usize);
            }
        }
        set(&mut self.device, 0x70, 0xf);
    }

    pub(crate) fn turn_on(&mut self, queue: usize) {
        for part in [1, 2] {
            self.memory.put(place(queue, part), &[0; 0x100]);
        }
        set(&mut self.device, 0x30, queue as u32);
        set(&mut self.device, 0x38, SIZE.into());
        for (part, offset) in [0x80, 0x90, 0xa0].into_iter().enumerate() {
            set(&mut self.device, offset, place(queue, part as u64) as u32);
            set(&mut self.device, offset + 4, 0);
        }
        set(&mut self.device, 0x44, 1);
        assert_eq!(get(&self.device, 0x44), 1);
    }

    /// Makes a chain of these pieces available. Returns whether the device is to be told.
    pub(crate) fn offer(&mut self, queue: usize, pieces: &[(u64, u32)], writes: bool) -> bool {
        let ring = &mut self.rings[queue];
        let head = ring.next;
        ring.next = (head + pieces.len() as u16) % SIZE;
        let flags = if writes { WRITE } else { 0 };
        for (index, &(address, len)) in (0..).zip(pieces) {
            let more = if usize::from(index) + 1 < pieces.len() { NEXT } else { 0 };
            let at = (head + index) % SIZE;
            let fields = (address, len, flags | more, (at + 1) % SIZE);
            descriptor(&self.memory, place(queue, 0), at, fields);
        }
        let at = place(queue, 1) + 4 + 2 * u64::from(ring.available % SIZE);
        self.memory.put(at, &head.to_le_bytes());
        ring.available = ring.available.wrapping_add(1);
        self.memory.store_release(place(queue, 1) + 2, ring.available).unwrap();
        let event = self.memory.word(place(queue, 2) + 4 + 8 * u64::from(SIZE));
        ring.available.wrapping_sub(event) == 1
    }

    /// Makes these bytes available for the device to read, in a chain of pieces that end at these places. Returns whether the
    /// device is to be told.
    pub(crate) fn offer_bytes(&mut self, queue: usize, bytes: &[u8], cuts: &[usize]) -> bool {
        let at = buffer(queue, self.rings[queue].next);
        self.memory.put(at, bytes);
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut % bytes.len()).collect();
        ends.extend([0, bytes.len()]);
        ends.sort_unstable();
        ends.dedup();
        let pieces: Vec<_> = ends
            .windows(2)
            .map(|piece| (at + piece[0] as u64, (piece[1] - piece[0]) as u32))
            .collect();
        self.offer(queue, &pieces, false)
    }

    /// What the device has used next: its head, and how many bytes it has written.
    pub(crate) fn used(&mut self, queue: usize) -> Option<(u32, u32)> {
        let used = self.rings[queue].used;
        if self.memory.word(place(queue, 2) + 2) == used {
            return None;
        }
        let element = self.memory.get(place(queue, 2) + 4 + 8 * u64::from(used % SIZE), 8);
        self.rings[queue].used = used.wrapping_add(1);
        let number = |at: usize| u32::from_le_bytes(element[at..at + 4].try_into().unwrap());
        Some((number(0), number(4)))
    }

    /// Saves this device, has `loaded` become it, and that of `copy`, which has had a driver of its own, go on as `loaded`;
    /// then that one and this one do the same.
    pub(crate) fn goes_on<S, T: PartialEq + Debug>(
        mut self,
        mut loaded: Mmio<D>,
        mut copy: Self,
        then: &[S],
        step: impl Fn(&mut Self, &S) -> T,
    ) {
        let bytes = save(&self.device);
        load(&mut loaded, &bytes).unwrap();
        assert_eq!(save(&loaded), bytes);
        copy.device.go_on_as(&loaded).unwrap();
        assert_eq!(save(&copy.device), bytes);
        let mut other = Self { memory: self.memory.copy(), device: copy.device, rings: self.rings };
        for each in then {
            assert_eq!(step(&mut self, each), step(&mut other, each));
            assert_eq!(self.device.interrupt(), other.device.interrupt());
        }
        assert_eq!(save(&self.device), save(&other.device));
        assert!(self.memory.get(BASE, BYTES) == other.memory.get(BASE, BYTES));
    }
}
