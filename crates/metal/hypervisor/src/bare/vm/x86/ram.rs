//! The memory of a guest, as its processor reads it: guests' own tables, and instructions that are decoded.

use mayfly_x86::bare::guest::Ram;
use mayfly_x86::guest::walk::Memory;

use crate::bare::world::memory::GuestMemory;

impl Memory for GuestMemory {
    #[inline]
    fn word(&self, address: u64) -> Option<u64> {
        self.few(address & !7).ok().map(u64::from_le_bytes)
    }
}

impl Ram for GuestMemory {
    #[inline]
    fn sixteen(&self, address: u64) -> Option<[u8; 16]> {
        self.few(address).ok()
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        self.read_now(address, into).ok()
    }

    fn write(&self, address: u64, from: &[u8]) -> Option<()> {
        self.write_now(address, from).ok()
    }
}
