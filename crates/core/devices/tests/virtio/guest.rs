//! A guest's memory, and a driver that knows its rings.

use std::cell::RefCell;

use mayfly_devices::memory::{BadAddress, GuestMemory};
use mayfly_devices::virtio::{Device, Mmio};

/// Where memory begins: below there is none.
pub(crate) const BASE: u64 = 0x4000_0000;
pub(crate) const BYTES: usize = 0x8_0000;

/// Memory that counts how often it is accessed.
pub(crate) struct Memory {
    bytes: RefCell<Vec<u8>>,
    pub(crate) accesses: RefCell<u64>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { bytes: RefCell::new(vec![0; BYTES]), accesses: RefCell::new(0) }
    }

    /// The same bytes, apart from these.
    pub(crate) fn copy(&self) -> Self {
        Self { bytes: self.bytes.clone(), accesses: RefCell::new(0) }
    }

    fn place(&self, address: u64, len: usize) -> Result<usize, BadAddress> {
        *self.accesses.borrow_mut() += 1;
        let start = address.checked_sub(BASE).and_then(|start| usize::try_from(start).ok());
        start
            .filter(|start| start.checked_add(len).is_some_and(|end| end <= BYTES))
            .ok_or(BadAddress { address })
    }

    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.write(address, bytes).unwrap();
    }

    pub(crate) fn get(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn word(&self, address: u64) -> u16 {
        self.load_acquire(address).unwrap()
    }
}

impl GuestMemory for Memory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        let place = self.place(address, into.len())?;
        into.copy_from_slice(&self.bytes.borrow()[place..place + into.len()]);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), BadAddress> {
        let place = self.place(address, from.len())?;
        self.bytes.borrow_mut()[place..place + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn load_acquire(&self, address: u64) -> Result<u16, BadAddress> {
        assert!(address.is_multiple_of(2), "one access");
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn store_release(&self, address: u64, value: u16) -> Result<(), BadAddress> {
        assert!(address.is_multiple_of(2), "one access");
        self.write(address, &value.to_le_bytes())
    }
}

pub(crate) const DESCRIPTORS: u64 = BASE;
pub(crate) const AVAILABLE: u64 = BASE + 0x1000;
pub(crate) const USED: u64 = BASE + 0x2000;
/// Tables of descriptors, and what requests have in them.
pub(crate) const TABLE: u64 = BASE + 0x4000;
pub(crate) const DATA: u64 = BASE + 0x1_0000;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

pub(crate) const INDIRECT_FEATURE: u64 = 1 << 28;
pub(crate) const EVENT_FEATURE: u64 = 1 << 29;
pub(crate) const VERSION_1: u64 = 1 << 32;

pub(crate) fn get<D: Device>(device: &Mmio<D>, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    device.read(offset, &mut bytes);
    u32::from_le_bytes(bytes)
}

pub(crate) fn set<D: Device>(device: &mut Mmio<D>, offset: u64, value: u32) -> bool {
    device.write(offset, &value.to_le_bytes())
}

/// Agrees on features, as far as `FEATURES_OK`; whether the device took them.
pub(crate) fn agree<D: Device>(device: &mut Mmio<D>, features: u64) -> bool {
    for status in [0, 1, 3] {
        set(device, 0x70, status);
    }
    for word in 0..2_u32 {
        set(device, 0x24, word);
        set(device, 0x20, (features >> (32 * word)) as u32);
    }
    set(device, 0x70, 0xb);
    get(device, 0x70) & 8 != 0
}

/// Turns queue 0 on, of `size` descriptors, and the driver with it.
pub(crate) fn start<D: Device>(device: &mut Mmio<D>, features: u64, size: u32) {
    assert!(agree(device, features));
    set(device, 0x30, 0);
    set(device, 0x38, size);
    for (offset, address) in [(0x80, DESCRIPTORS), (0x90, AVAILABLE), (0xa0, USED)] {
        set(device, offset, address as u32);
        set(device, offset + 4, (address >> 32) as u32);
    }
    set(device, 0x44, 1);
    assert_eq!(get(device, 0x44), 1);
    set(device, 0x70, 0xf);
}

pub(crate) fn descriptor(memory: &Memory, table: u64, index: u16, fields: (u64, u32, u16, u16)) {
    let (address, len, flags, next) = fields;
    let bytes =
        [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
    memory.put(table + 16 * u64::from(index), &bytes.concat());
}

/// A driver that has one request under way at a time, at the first descriptors.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) size: u16,
    pub(crate) available: u16,
}

impl Driver {
    /// Makes a chain available that begins at `head`.
    pub(crate) fn offer(&mut self, memory: &Memory, head: u16) {
        let place = u64::from(self.available % self.size);
        memory.put(AVAILABLE + 4 + 2 * place, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        memory.store_release(AVAILABLE + 2, self.available).unwrap();
    }

    /// Makes a chain of these segments available: address, length, whether the device writes it.
    pub(crate) fn request(
        &mut self,
        memory: &Memory,
        segments: &[(u64, u32, bool)],
        indirect: bool,
    ) {
        let table = if indirect { TABLE } else { DESCRIPTORS };
        for (index, (address, len, write)) in segments.iter().enumerate() {
            let last = index + 1 == segments.len();
            let flags = if *write { WRITE } else { 0 } | if last { 0 } else { NEXT };
            descriptor(memory, table, index as u16, (*address, *len, flags, index as u16 + 1));
        }
        if indirect {
            let len = 16 * segments.len() as u32;
            descriptor(memory, DESCRIPTORS, 0, (TABLE, len, INDIRECT, 0));
        }
        self.offer(memory, 0);
    }

    /// What the device says of the last that it used: its head, and how many bytes it wrote.
    pub(crate) fn used(&self, memory: &Memory) -> Option<(u32, u32)> {
        let used = memory.word(USED + 2);
        (used == self.available).then(|| {
            let place = u64::from(used.wrapping_sub(1) % self.size);
            let element = memory.get(USED + 4 + 8 * place, 8);
            let number = |at: usize| u32::from_le_bytes(element[at..at + 4].try_into().unwrap());
            (number(0), number(4))
        })
    }
}
