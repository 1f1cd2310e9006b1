//! The memory of a guest, as its processor reads it: guests' own tables, and instructions that are decoded.

use mayfly_x86::bare::guest::{self, Ram};
use mayfly_x86::guest::walk::Memory;

use crate::bare::world::memory::GuestMemory;
use crate::bare::world::x86::Glance;

impl Memory for GuestMemory {
    #[inline]
    fn word(&self, address: u64) -> Option<u64> {
        self.few(address & !7).ok().map(u64::from_le_bytes)
    }
}

impl Memory for Glance<'_> {
    #[inline]
    fn word(&self, address: u64) -> Option<u64> {
        self.few(address & !7).map(u64::from_le_bytes)
    }
}

impl guest::Glance for Glance<'_> {
    #[inline]
    fn sixteen(&self, address: u64) -> Option<[u8; 16]> {
        self.few(address)
    }
}

impl Ram for GuestMemory {
    type Glance<'a> = Glance<'a>;

    #[inline]
    fn glance(&self) -> Glance<'_> {
        Self::glance(self)
    }

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
