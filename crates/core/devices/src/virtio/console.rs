//! A console: virtio 1.2, 5.3. It has one port, and no size that it tells of.
//!
//! What a guest sends stays in its memory until the embedder takes it ([`Mmio::next_output`]), a piece at a time: a chain
//! may have gigabytes. The chain is the driver's again when its last byte was taken. What is typed for the guest waits in the
//! device until its driver has room ([`Mmio::receive`], [`Mmio::deliver`]).

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::backend::{Backend, sealed};
use super::chain::{Chain, Malformed};
use super::mmio::Mmio;
use super::queue::Used;
use crate::memory::GuestMemory;

/// The queues, by number.
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;
const QUEUES: usize = 2;

/// The most bytes that wait for room.
const WAITING: usize = 64;

/// A console.
#[derive(Clone, Debug)]
pub struct Console {
    /// How many bytes of the chain that is next to be sent were taken already.
    taken: u64,
    /// What waits for room: so many of these bytes.
    waiting: [u8; WAITING],
    count: usize,
}

impl Console {
    /// One to which nothing was typed.
    pub const fn new() -> Self {
        Self { taken: 0, waiting: [0; WAITING], count: 0 }
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl sealed::Device for Console {}

impl Backend for Console {
    const ID: u32 = 3;
    const QUEUES: usize = QUEUES;
    /// What is sent is taken, and not served.
    const SERVED: Option<usize> = None;

    fn reset(&mut self) {
        (self.taken, self.count) = (0, 0);
    }

    fn forget(&mut self, queue: usize) {
        if queue == TRANSMIT {
            self.taken = 0;
        }
    }

    /// How much of a chain was taken, and what waits for room.
    type Saved = Self;

    fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.u64(self.taken);
        to.u32(self.count as u32);
        to.bytes(&self.waiting[..self.count]);
    }

    fn saved(&self, from: &mut SectionReader<'_>) -> Result<Self, Error> {
        let mut saved = Self { taken: from.u64("bytes taken")?, ..Self::new() };
        saved.count = from.count("bytes waiting", WAITING)?;
        for byte in &mut saved.waiting[..saved.count] {
            *byte = from.u8("byte waiting")?;
        }
        Ok(saved)
    }

    fn state(&self) -> Self {
        self.clone()
    }

    fn adopt(&mut self, saved: Self) {
        *self = saved;
    }
}

impl Mmio<Console> {
    /// Copies the next bytes that the guest sends, as many as there is room for in `into`, which is not empty. Returns how
    /// many there are: none of them where the driver has given memory that is not there, and `None` where it sends nothing; it
    /// tells when it does. The driver may be told.
    pub fn next_output(&mut self, into: &mut [u8], memory: &impl GuestMemory) -> Option<usize> {
        if !self.is_live(TRANSMIT) {
            return None;
        }
        let taken = self.take_output(into, memory);
        self.unless_malformed(taken, None)
    }

    #[inline(never)]
    fn take_output(
        &mut self,
        into: &mut [u8],
        memory: &impl GuestMemory,
    ) -> Result<Option<usize>, Malformed> {
        let mut chain = Chain::new();
        let Some(head) = self.next_chain(TRANSMIT, &mut chain, memory)? else { return Ok(None) };
        let begin = self.device().taken;
        let queue = self.queue(TRANSMIT);
        if chain.writable() != 0 {
            return Err(Malformed);
        }
        let left = chain.readable().saturating_sub(begin);
        let mut count = left.min(into.len() as u64) as usize;
        match chain.read(begin, &mut into[..count], memory) {
            Ok(()) if (count as u64) < left => {
                queue.put_back(1);
                self.device_mut().taken = begin + count as u64;
                return Ok(Some(count));
            }
            Ok(()) => {}
            // What is left of it cannot be had.
            Err(_) => count = 0,
        }
        self.device_mut().taken = 0;
        self.give_back_chain(TRANSMIT, Used { head, written: 0 }, memory)?;
        Ok(Some(count))
    }

    /// Whether its driver takes what is typed.
    pub fn receives(&self) -> bool {
        self.is_live(RECEIVE)
    }

    /// Takes bytes that are for the guest. Returns how many: those that there is no room for are for later, and a driver that
    /// does not work takes none. They are the driver's with the next [`Mmio::deliver`].
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        if !self.receives() {
            return 0;
        }
        let Console { waiting, count, .. } = self.device_mut();
        let room = &mut waiting[*count..];
        let taken = bytes.len().min(room.len());
        room[..taken].copy_from_slice(&bytes[..taken]);
        *count += taken;
        taken
    }

    /// Puts what waits for the guest where its driver has room. The driver may be told. What there is no room for stays, and
    /// the driver tells when there is. Of buffers that are not there, at most as many are passed over as the queue has.
    pub fn deliver(&mut self, memory: &impl GuestMemory) {
        let mut missing = 0;
        while self.is_live(RECEIVE) && self.device().count > 0 {
            let delivered = self.deliver_next(memory);
            match self.unless_malformed(delivered, None) {
                None => return,
                // A driver may offer others all the time.
                Some(0) if missing + 1 >= self.queue(RECEIVE).size => return,
                Some(0) => missing += 1,
                Some(_) => {}
            }
        }
    }

    /// Fills the next buffer, if there is one. Returns how many bytes it has taken: none if it is not there.
    #[inline(never)]
    fn deliver_next(&mut self, memory: &impl GuestMemory) -> Result<Option<usize>, Malformed> {
        let mut chain = Chain::new();
        let Some(head) = self.next_chain(RECEIVE, &mut chain, memory)? else { return Ok(None) };
        let Console { waiting, count, .. } = *self.device();
        if chain.readable() != 0 {
            return Err(Malformed);
        }
        let mut now = chain.writable().min(count as u64) as usize;
        if chain.write(0, &waiting[..now], memory).is_err() {
            // A buffer that is not there is given back empty.
            now = 0;
        }
        let console = self.device_mut();
        console.waiting.copy_within(now..count, 0);
        console.count = count - now;
        self.give_back_chain(RECEIVE, Used { head, written: now as u32 }, memory)?;
        Ok(Some(now))
    }
}
