//! Frames that a guest sends.

use super::header::{BadPacket, HEADER, Offload};
use super::{Net, TRANSMIT};
use crate::memory::{BadAddress, BadCopy, GuestMemory, copy, copy_in_pieces};
use crate::virtio::chain::{Chain, Malformed};
use crate::virtio::mmio::Mmio;
use crate::virtio::queue::Used;

/// How many bytes of a frame are its head.
pub const FRAME_HEAD: usize = 14;

/// How many bytes, and how many frames, are given back at most before the driver is told.
const MOST_UNTOLD: u64 = 8 << 10;
const MOST_FRAMES_UNTOLD: u16 = 16;

/// Where a frame's bytes are.
pub trait Source {
    /// Copies from `offset`, in bytes from the beginning of the frame, within the frame.
    ///
    /// # Errors
    ///
    /// [`BadAddress`], where its sender has given memory that is not there.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), BadAddress>;

    /// Copies `bytes` bytes from `offset` on, within the frame, to `to` on in a receiver's memory.
    ///
    /// # Errors
    ///
    /// [`BadCopy`]: which of both has given memory that is not there.
    fn copy(
        &self,
        offset: u64,
        bytes: usize,
        (memory, to): (&impl GuestMemory, u64),
    ) -> Result<(), BadCopy> {
        copy_in_pieces(|at, piece| self.read(offset + at, piece), (memory, to), bytes)
    }
}

/// A frame that a guest sends. Its bytes lie in the guest's memory, and may change at any time.
#[derive(Debug)]
pub struct Packet {
    chain: Chain,
    head: u16,
    epoch: u32,
    /// What the frame begins with, as it was read once: what it is judged by is what is received.
    frame_head: [u8; FRAME_HEAD],
    offload: Result<Offload, BadPacket>,
}

impl Packet {
    /// Room for one.
    pub const fn new() -> Self {
        Self {
            chain: Chain::new(),
            head: 0,
            epoch: 0,
            frame_head: [0; FRAME_HEAD],
            offload: Err(BadPacket),
        }
    }

    /// How many bytes the frame has.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> u64 {
        self.chain.readable().saturating_sub(HEADER)
    }

    /// What its sender has left to do. It is checked: places are within the frame, and its length is one that a frame may
    /// have.
    ///
    /// # Errors
    ///
    /// [`BadPacket`]: it is to go to nobody.
    pub fn offload(&self) -> Result<Offload, BadPacket> {
        self.offload
    }

    /// What it begins with: the address that it is for, the one that it is from, and what it is. Its source has the same.
    pub fn head(&self) -> &[u8; FRAME_HEAD] {
        &self.frame_head
    }

    /// Its bytes, in its sender's memory.
    pub fn in_memory<'a, M: GuestMemory>(&'a self, memory: &'a M) -> impl Source + 'a {
        InMemory { packet: self, memory }
    }
}

impl Default for Packet {
    fn default() -> Self {
        Self::new()
    }
}

struct InMemory<'a, M> {
    packet: &'a Packet,
    memory: &'a M,
}

impl<M> InMemory<'_, M> {
    /// What the packet has of its own of the bytes from `offset` on.
    fn own(&self, offset: u64) -> &[u8] {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        self.packet.frame_head.get(start..).unwrap_or_default()
    }
}

/// Where in the chain the byte is that comes `skipped` bytes behind `offset` of the frame.
fn in_chain(offset: u64, skipped: usize) -> Result<u64, BadAddress> {
    offset.checked_add(HEADER + skipped as u64).ok_or(BadAddress { address: offset })
}

/// Why bytes of a chain were not copied: what is not in the chain is not there to copy from.
struct Uncopied(BadCopy);

impl From<BadAddress> for Uncopied {
    fn from(address: BadAddress) -> Self {
        Self(BadCopy::From(address))
    }
}

impl<M: GuestMemory> Source for InMemory<'_, M> {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        let own = self.own(offset);
        let (first, rest) = into.split_at_mut(own.len().min(into.len()));
        first.copy_from_slice(&own[..first.len()]);
        self.packet.chain.read(in_chain(offset, first.len())?, rest, self.memory)
    }

    fn copy(
        &self,
        offset: u64,
        bytes: usize,
        (memory, to): (&impl GuestMemory, u64),
    ) -> Result<(), BadCopy> {
        let own = self.own(offset);
        let own = &own[..own.len().min(bytes)];
        if !own.is_empty() {
            memory.write(to, own).map_err(BadCopy::To)?;
        }
        let at = in_chain(offset, own.len()).map_err(BadCopy::From)?;
        let to = to.saturating_add(own.len() as u64);
        let copied = self.packet.chain.each_read(at, bytes - own.len(), |from, start, end| {
            let to = to.saturating_add(start as u64);
            copy((self.memory, from), (memory, to), end - start).map_err(Uncopied)
        });
        copied.map_err(|Uncopied(why)| why)
    }
}

impl Mmio<Net> {
    /// Takes the next frame that the guest sends; whether there was one. It is given back by [`Mmio::give_back`], also
    /// where it is malformed. Where there was none, the driver tells when there is one, and `packet` goes to nobody.
    pub fn take(&mut self, packet: &mut Packet, memory: &impl GuestMemory) -> bool {
        if !self.is_live(TRANSMIT) {
            return false;
        }
        let taken = self.take_next(packet, memory);
        let is_taken = self.unless_malformed(taken, false);
        if is_taken {
            self.took();
        }
        is_taken
    }

    fn take_next(
        &mut self,
        packet: &mut Packet,
        memory: &impl GuestMemory,
    ) -> Result<bool, Malformed> {
        let (rules, epoch) = (self.rules(), self.epoch());
        let queue = self.queue(TRANSMIT);
        // Until it is known: what was left to be done of the frame before is not checked against this one.
        packet.offload = Err(BadPacket);
        let head = loop {
            if let Some(head) = queue.next(rules, &mut packet.chain, memory)? {
                break head;
            }
            if !queue.rest(rules, memory)? {
                return Ok(false);
            }
        };
        (packet.head, packet.epoch) = (head, epoch);
        let mut begin = [0; HEADER as usize + FRAME_HEAD];
        if packet.chain.writable() != 0 || packet.chain.readable() < HEADER {
            return Err(Malformed);
        }
        if let Ok(()) = packet.chain.read(0, &mut begin, memory)
            && let Some((header, head)) = begin.split_first_chunk()
            && let Ok(head) = head.try_into()
        {
            packet.frame_head = head;
            packet.offload =
                Offload::parse(*header, packet.len(), |feature| self.has_agreed(feature));
        }
        Ok(true)
    }

    /// Gives a frame back that was [taken](Mmio::take), once; the driver may be told. Nothing happens if the driver has
    /// begun anew since.
    pub fn give_back(&mut self, packet: &Packet, memory: &impl GuestMemory) {
        if self.complete_frame(packet, memory) {
            self.tell();
        }
    }

    /// The same, but a driver that wants to be told is told later, as by a card whose interrupts are coalesced: with the next
    /// frame that it receives, or by [`Mmio::tell_of_frames`], which the embedder calls within a time of its choice. So a frame that
    /// is answered soon interrupts its guest once, and not twice. A driver to which 8 KiB were given back, or 16 frames, or a
    /// quarter of its queue, is told at once: it may be waiting for that to send more.
    pub fn give_back_untold(&mut self, packet: &Packet, memory: &impl GuestMemory) {
        if self.complete_frame(packet, memory) || self.is_untold() {
            let frames = (self.queue(TRANSMIT).size / 4).clamp(1, MOST_FRAMES_UNTOLD);
            self.tell_later(packet.len().max(MOST_UNTOLD / u64::from(frames)), MOST_UNTOLD);
        }
    }

    /// Tells the driver of frames that were given back, if it is to be told.
    pub fn tell_of_frames(&mut self) {
        if self.is_untold() {
            self.tell();
        }
    }

    /// Gives a frame back, if the driver has not begun anew since. Returns whether the driver wants to be told.
    fn complete_frame(&mut self, packet: &Packet, memory: &impl GuestMemory) -> bool {
        if packet.epoch != self.epoch() {
            return false;
        }
        self.gave_back();
        if !self.is_live(TRANSMIT) {
            return false;
        }
        let rules = self.rules();
        let used = Used { head: packet.head, written: 0 };
        let done = self.queue(TRANSMIT).complete(rules, used, memory);
        self.unless_malformed(done, false)
    }
}
