//! Whose frames are in a receiver's ring, and who may put one more there.
//!
//! A ring is filled by whoever sends first. A port that sends without an end has filled it by the time that others send, whose
//! frames are lost then: what a connection sends is lost more often the more a third port sends to all. So a sender whose frames
//! have taken more than [twice](SHARE) the buffers that are free has its frame lost. A port that sends alone has two thirds of
//! a ring. Two that send without an end have two fifths each, and so on: there is always room for one more. (Choudhury and Hahne,
//! "Dynamic queue length thresholds for shared-memory packet switches", 1998.)
//!
//! A driver gives buffers back in an order of its own. They are taken to come back in the order in which they went, which is right
//! on the whole: it gives back as many as it was given.

use crate::Port;

/// How many buffers a sender's frames may have, for each that is free.
const SHARE: u16 = 2;

/// The most buffers of a ring whose senders are known.
const MOST: usize = 256;

/// Senders whose ports' numbers are the same but for a multiple of this share their share.
const SENDERS: usize = 64;

/// A receiver's ring, as its device sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Its buffers, which are 256 at most.
    pub size: u16,
    /// How many buffers the driver has offered since it has begun, modulo 2^16.
    pub offered: u16,
    /// How many of these have been taken, modulo 2^16.
    pub taken: u16,
}

impl Ring {
    /// How many buffers are free.
    const fn free(self) -> u16 {
        self.offered.wrapping_sub(self.taken)
    }
}

/// Whose frames are in a receiver's ring.
#[derive(Clone, Debug)]
pub struct Senders {
    /// Who has taken the buffer of a place in the order in which they are taken, by its sender's place in `held`.
    taken_by: [u8; MOST],
    /// How many of the buffers from `begin` to `end` a sender has.
    held: [u16; SENDERS],
    begin: u16,
    end: u16,
}

impl Default for Senders {
    fn default() -> Self {
        Self::new()
    }
}

impl Senders {
    /// Nobody's.
    pub const fn new() -> Self {
        Self { taken_by: [0; MOST], held: [0; SENDERS], begin: 0, end: 0 }
    }

    /// Whether a frame of `from` may be put into the ring now.
    pub fn admits(&mut self, from: Port, ring: Ring) -> bool {
        let (free, size) = (u32::from(ring.free()), u32::from(ring.size));
        // Nobody has taken more than is not free.
        if size.saturating_sub(free) <= free * u32::from(SHARE) {
            return true;
        }
        // What was offered since has taken the place of what came back.
        self.forget_until(ring.offered.wrapping_sub(ring.size));
        u32::from(self.held[place(from)]) <= free * u32::from(SHARE)
    }

    /// Frames of `from` have been put into the ring, which is as `ring` says now.
    pub fn took(&mut self, from: Port, ring: Ring) {
        let place = place(from);
        // It has begun anew, or was filled by nobody that is known here.
        if usize::from(ring.taken.wrapping_sub(self.end)) > MOST {
            *self = Self { begin: ring.taken, end: ring.taken, ..Self::new() };
        }
        while self.end != ring.taken {
            if self.len() == MOST {
                self.forget_until(self.begin.wrapping_add(1));
            }
            self.taken_by[usize::from(self.end) % MOST] = place as u8;
            self.held[place] += 1;
            self.end = self.end.wrapping_add(1);
        }
    }

    fn len(&self) -> usize {
        usize::from(self.end.wrapping_sub(self.begin))
    }

    /// Those before `begin` have come back. One that is none of the known is that of a ring which has begun anew.
    fn forget_until(&mut self, begin: u16) {
        let count = usize::from(begin.wrapping_sub(self.begin));
        if count > self.len() {
            return;
        }
        for _ in 0..count {
            self.held[usize::from(self.taken_by[usize::from(self.begin) % MOST])] -= 1;
            self.begin = self.begin.wrapping_add(1);
        }
    }
}

/// A port's place among the senders.
const fn place(port: Port) -> usize {
    (port.0 % SENDERS as u64) as usize
}
