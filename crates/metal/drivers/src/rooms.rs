//! Buffers that several parties share: how many each may have.
//!
//! By dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches",
//! IEEE/ACM Transactions on Networking 6(2), 1998): a party gets a buffer as long as it has fewer than are free. So a party
//! alone gets half of them, and leaves the other half. Whoever has none is refused only where none is free.

use alloc::vec::Vec;

use crate::start::Unusable;

/// How many of so many buffers each party has.
#[derive(Debug)]
pub struct Rooms {
    free: usize,
    /// Those that have some, and how many.
    held: Vec<(u64, usize)>,
}

impl Rooms {
    /// `count` buffers, all free.
    ///
    /// # Errors
    ///
    /// [`Unusable::NoMemory`].
    pub fn try_new(count: usize) -> Result<Self, Unusable> {
        let mut held = Vec::new();
        held.try_reserve_exact(count).map_err(|_| Unusable::NoMemory)?;
        Ok(Self { free: count, held })
    }

    /// How many are free.
    pub const fn free(&self) -> usize {
        self.free
    }

    /// Gives a buffer to a party; whether it gets one.
    pub fn take(&mut self, party: u64) -> bool {
        let place = self.held.iter().position(|(other, _)| *other == party);
        if place.map_or(0, |place| self.held[place].1) >= self.free {
            return false;
        }
        self.free -= 1;
        match place {
            Some(place) => self.held[place].1 += 1,
            // There is room: each entry has a buffer at least.
            None => self.held.push((party, 1)),
        }
        true
    }

    /// A party gives a buffer back that it has.
    pub fn give_back(&mut self, party: u64) {
        let Some(place) = self.held.iter().position(|(other, _)| *other == party) else { return };
        self.free += 1;
        self.held[place].1 -= 1;
        if self.held[place].1 == 0 {
            self.held.swap_remove(place);
        }
    }
}
