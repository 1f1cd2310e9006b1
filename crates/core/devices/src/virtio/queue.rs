//! A split virtqueue, from the device's side (virtio 1.2, 2.7).
//!
//! The driver writes a ring of heads, and then its index. The device writes a ring of what it has used, and then its
//! index. Each says to the other from which index on it wants to be notified (with the event index), or whether at all.
//! Both write, pass a full barrier, and read, so that one of them sees the other. The device's barriers are in
//! [`Queue::rest`] and [`Queue::complete`].

#[cfg(all(test, mayfly_loom))]
mod model;

use mayfly_platform::sync::{Ordering, fence};
use mayfly_state::{Error, SectionReader, SectionWriter};

use super::chain::{Chain, Malformed, Table};
use crate::memory::{BadAddress, GuestMemory};

/// The most descriptors of a queue.
pub(crate) const MAX_SIZE: u16 = 256;

const NO_INTERRUPT: u16 = 1;

/// What has been agreed about rings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) indirect: bool,
    pub(crate) event_index: bool,
}

/// A chain that was used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub(crate) head: u16,
    /// How many bytes of it were written.
    pub(crate) written: u32,
}

/// A queue, by the numbers that its driver has given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    pub(crate) size: u16,
    pub(crate) ready: bool,
    pub(crate) descriptors: u64,
    /// The driver's area: the ring of what is available.
    pub(crate) driver: u64,
    /// The device's area: the ring of what has been used.
    pub(crate) device: u64,
    next_available: u16,
    next_used: u16,
    /// Its driver's index, as it was when it was last looked at.
    seen_available: u16,
    /// Its driver has waited for something to be used, by the event index.
    has_waited: bool,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { size: MAX_SIZE, ..Self::default() }
    }

    /// Turns it on, if its numbers allow it.
    pub(crate) fn start(&mut self) {
        self.ready = self.makes_sense();
        (self.next_available, self.next_used, self.seen_available) = (0, 0, 0);
        self.has_waited = false;
    }

    /// The driver's area and the device's, by their addresses and bytes.
    pub(crate) fn rings(&self) -> [(u64, u64); 2] {
        let size = u64::from(self.size);
        [(self.driver, 6 + 2 * size), (self.device, 6 + 8 * size)]
    }

    /// A power of two of descriptors, each part aligned, none past the end.
    fn makes_sense(&self) -> bool {
        let fits = |(address, len): (u64, u64), align: u64| {
            address.is_multiple_of(align) && address.checked_add(len).is_some()
        };
        let [driver, device] = self.rings();
        self.size.is_power_of_two()
            && self.size <= MAX_SIZE
            && fits((self.descriptors, 16 * u64::from(self.size)), 16)
            && fits(driver, 2)
            && fits(device, 4)
    }

    /// Writes what it is.
    pub(crate) fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.u16(self.size);
        to.flag(self.ready);
        to.u64(self.descriptors);
        to.u64(self.driver);
        to.u64(self.device);
        to.u16(self.next_available);
        to.u16(self.next_used);
    }

    /// One that goes on as the saved one would have. The indexes count chains, and any of them has a place in the rings.
    pub(crate) fn load(from: &mut SectionReader<'_>) -> Result<Self, Error> {
        let mut queue = Self {
            size: from.u16("queue size")?,
            ready: from.flag("queue ready")?,
            descriptors: from.u64("descriptor area")?,
            driver: from.u64("driver area")?,
            device: from.u64("device area")?,
            next_available: from.u16("next available")?,
            next_used: from.u16("next used")?,
            seen_available: 0,
            has_waited: false,
        };
        queue.seen_available = queue.next_available;
        from.check("queue ready", 1, !queue.ready || queue.makes_sense())?;
        Ok(queue)
    }

    /// The next chain that is available goes into `chain`; its head.
    pub(crate) fn next(
        &mut self,
        rules: Rules,
        chain: &mut Chain,
        memory: &impl GuestMemory,
    ) -> Result<Option<u16>, Malformed> {
        // What was made available is not taken back: only where all of that is taken, the index is looked at again.
        if self.seen_available == self.next_available {
            self.seen_available = memory.load_acquire(self.driver + 2)?;
        }
        let waiting = self.seen_available.wrapping_sub(self.next_available);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > self.size {
            return Err(Malformed);
        }
        let place = u64::from(self.next_available % self.size);
        let head = memory.load_acquire(self.driver + 4 + 2 * place)?;
        let table = Table { address: self.descriptors, len: self.size.into() };
        chain.collect(table, head, rules.indirect, memory)?;
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(head))
    }

    /// How many chains the driver has offered since it has begun, modulo 2^16. Its index is looked at again where no more than half
    /// of the ring is known to be offered.
    pub(crate) fn offered(&mut self, memory: &impl GuestMemory) -> Result<u16, Malformed> {
        if self.seen_available.wrapping_sub(self.next_available) <= self.size / 2 {
            self.seen_available = memory.load_acquire(self.driver + 2)?;
        }
        Ok(self.seen_available)
    }

    /// How many of these were taken, modulo 2^16.
    pub(crate) const fn taken(&self) -> u16 {
        self.next_available
    }

    /// Whether the driver may be waiting. It says so by the event index: it wants to be told of a chain that it has offered, and that
    /// was not given back yet. One that does not use that, or has never waited by it, does not say.
    pub(crate) fn may_be_waited_for(
        &self,
        rules: Rules,
        memory: &impl GuestMemory,
    ) -> Result<bool, Malformed> {
        if !rules.event_index || !self.has_waited {
            return Ok(true);
        }
        let ahead = self.wanted(memory)?.wrapping_sub(self.next_used);
        Ok(ahead < self.seen_available.wrapping_sub(self.next_available))
    }

    /// Puts the last `count` chains that were taken back: they are the next again.
    pub(crate) fn put_back(&mut self, count: u16) {
        self.next_available = self.next_available.wrapping_sub(count);
    }

    /// Gives a chain back that was taken; whether the driver wants to be told.
    pub(crate) fn complete(
        &mut self,
        rules: Rules,
        chain: Used,
        memory: &impl GuestMemory,
    ) -> Result<bool, Malformed> {
        self.put_used(0, chain, memory)?;
        self.publish(1, rules, memory)
    }

    /// Writes of a chain that was used, as the one behind so many that are not published yet.
    pub(crate) fn put_used(
        &self,
        behind: u16,
        chain: Used,
        memory: &impl GuestMemory,
    ) -> Result<(), Malformed> {
        let place = u64::from(self.next_used.wrapping_add(behind) % self.size);
        let mut element = [0; 8];
        element[..4].copy_from_slice(&u32::from(chain.head).to_le_bytes());
        element[4..].copy_from_slice(&chain.written.to_le_bytes());
        Ok(memory.write(self.device + 4 + 8 * place, &element)?)
    }

    /// Gives back so many chains that were [put](Queue::put_used), all at once; whether the driver wants to be told.
    pub(crate) fn publish(
        &mut self,
        count: u16,
        rules: Rules,
        memory: &impl GuestMemory,
    ) -> Result<bool, Malformed> {
        let used = self.next_used;
        self.next_used = used.wrapping_add(count);
        memory.store_release(self.device + 2, self.next_used)?;
        // Pairs with the driver's between its wish and its look at the index.
        fence(Ordering::SeqCst);
        if !rules.event_index {
            return Ok(memory.load_acquire(self.driver)? & NO_INTERRUPT == 0);
        }
        let wanted = self.wanted(memory)?;
        // "Tell me when you have used this one": one that was used now.
        let tells = wanted.wrapping_sub(used) < count;
        // One that has never written it has zero there, and so has Linux where it does not wait.
        self.has_waited |= tells && wanted != 0;
        Ok(tells)
    }

    /// Behind how many chains that are used the driver wants to be told, by the event index.
    fn wanted(&self, memory: &impl GuestMemory) -> Result<u16, BadAddress> {
        memory.load_acquire(self.driver + 4 + 2 * u64::from(self.size))
    }

    /// Nothing was available: asks to be told of the next; whether there is something by now.
    pub(crate) fn rest(
        &mut self,
        rules: Rules,
        memory: &impl GuestMemory,
    ) -> Result<bool, Malformed> {
        if !rules.event_index {
            // Its driver tells the device of everything.
            return Ok(false);
        }
        let event = self.device + 4 + 8 * u64::from(self.size);
        memory.store_release(event, self.next_available)?;
        // Pairs with the driver's between its index and its look at this.
        fence(Ordering::SeqCst);
        Ok(memory.load_acquire(self.driver + 2)? != self.next_available)
    }
}
