//! A guest's memory, as tests have it.

use std::cell::RefCell;

use mayfly_vgic::GuestTables;

/// Where it begins.
pub(crate) const AT: u64 = 0x4000_0000;

pub(crate) struct Memory(RefCell<Vec<u8>>);

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(RefCell::new(vec![0; bytes]))
    }

    fn place(&self, address: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(address.checked_sub(AT)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.0.borrow().len()).then_some(start..end)
    }

    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        assert!(self.write(address, bytes), "{address:#x} is memory");
    }

    pub(crate) fn get<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        assert!(self.read(address, &mut bytes), "{address:#x} is memory");
        bytes
    }

    /// Writes a command of the queue.
    pub(crate) fn command(&self, at: u64, words: [u64; 4]) {
        for (place, word) in (0..).zip(words) {
            self.put(at + 8 * place, &word.to_le_bytes());
        }
    }
}

impl GuestTables for Memory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let Some(place) = self.place(address, into.len()) else { return false };
        into.copy_from_slice(&self.0.borrow()[place]);
        true
    }

    fn write(&self, address: u64, from: &[u8]) -> bool {
        let Some(place) = self.place(address, from.len()) else { return false };
        self.0.borrow_mut()[place].copy_from_slice(from);
        true
    }
}
