//! What guests have: their memory, as devices see it, and a disk.

use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_devices::memory::{BadAddress, GuestMemory};
use mayfly_devices::virtio::{Disk, DiskError};
use mayfly_vm::memslot::{Hva, PAGE_SIZE};
use mayfly_vm::testing::Memory;

use crate::step::PAGES;

/// Where the memory begins, as devices see it, and its parts: a queue's, and what requests have in them.
pub(crate) const BASE: u64 = 0x4000_0000;
pub(super) const BYTES: u64 = PAGES * PAGE_SIZE;
pub(super) const AVAILABLE: u64 = BASE + 0x1000;
pub(super) const USED: u64 = BASE + 0x2000;
pub(crate) const DATA: u64 = BASE + 0x3000;
/// Descriptors of a queue.
pub(super) const SIZE: u16 = 8;

/// The memory of guests, as devices see it. Of one that `misses` some, every other page is not there.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) at: Hva,
    /// In place of that, where it is not empty.
    pub(super) own: &'a [AtomicU64],
    pub(super) misses: bool,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(memory: &'a Memory, at: Hva, own: &'a [AtomicU64]) -> Self {
        Self { memory, at, own, misses: false }
    }

    /// Where these bytes are, if they are there.
    fn place(&self, address: u64, len: usize) -> Result<u64, BadAddress> {
        let place = address.checked_sub(BASE).filter(|place| {
            let end = place.checked_add(len as u64);
            let is_missing = self.misses && !(place / PAGE_SIZE).is_multiple_of(2);
            end.is_some_and(|end| end <= BYTES) && !is_missing
        });
        place.ok_or(BadAddress { address })
    }

    fn word(&self, place: u64) -> &AtomicU64 {
        let own = self.own.get(place as usize / 8);
        own.unwrap_or_else(|| self.memory.word(Hva::new(self.at.get() + (place & !7))))
    }
}

/// How far left a byte is in its word.
fn shift(place: u64) -> u64 {
    place % 8 * 8
}

impl GuestMemory for Shared<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        for (place, byte) in (self.place(address, into.len())?..).zip(into) {
            *byte = (self.word(place).load(Ordering::Relaxed) >> shift(place)) as u8;
        }
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), BadAddress> {
        for (place, byte) in (self.place(address, from.len())?..).zip(from) {
            let with =
                |word: u64| word & !(0xff << shift(place)) | u64::from(*byte) << shift(place);
            let word = self.word(place);
            word.store(with(word.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
        Ok(())
    }

    fn load_acquire(&self, address: u64) -> Result<u16, BadAddress> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn store_release(&self, address: u64, value: u16) -> Result<(), BadAddress> {
        self.write(address, &value.to_le_bytes())
    }
}

/// A disk whose last sector fails.
pub(super) struct Ram(pub(super) Vec<u8>);

impl Ram {
    fn at(&mut self, offset: u64, len: usize) -> Result<&mut [u8], DiskError> {
        let good = self.0.len() - 512;
        self.0[..good]
            .get_mut(offset as usize..)
            .and_then(|from| from.get_mut(..len))
            .ok_or(DiskError)
    }
}

impl Disk for Ram {
    fn sectors(&self) -> u64 {
        self.0.len() as u64 / 512
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.copy_from_slice(self.at(offset, into.len())?);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        self.at(offset, from.len())?.copy_from_slice(from);
        Ok(())
    }
}
