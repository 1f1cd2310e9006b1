//! Frames that a guest receives.

use core::ops::Range;

use super::header::{BUFFERS, Family, HEADER, Offload};
use super::{Net, RECEIVE, Source, feature};
use crate::memory::{BadAddress, BadCopy, GuestMemory};
use crate::virtio::chain::{Chain, Malformed};
use crate::virtio::mmio::Mmio;
use crate::virtio::queue::Used;

/// The most buffers that a frame is put into.
const MOST_BUFFERS: usize = 64;

/// A frame that is to be received: bytes of its own, and then some of its source.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// What it begins with: headers that were changed.
    pub head: &'a [u8],
    /// Which bytes of the source follow.
    pub rest: Range<u64>,
    /// What is still to be done.
    pub offload: Offload,
}

impl Frame<'_> {
    /// How many bytes it has. A range that ends before it begins has none.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub const fn len(&self) -> u64 {
        let rest = self.rest.end.saturating_sub(self.rest.start);
        rest.saturating_add(self.head.len() as u64)
    }
}

/// Why a frame was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The driver does not receive, or not yet, or its rings make no sense.
    #[error("the receiver does not work")]
    NotWorking,
    /// The driver has given no buffers, or too few.
    #[error("the receiver has no room")]
    NoRoom,
    /// It is longer than a buffer, and the driver takes a frame in one only.
    #[error("the frame is longer than the receiver's buffers")]
    TooLong,
    /// The driver has given memory that is not there, or that there is no room for.
    #[error("the receiver's memory cannot be written")]
    Unwritable,
    /// Its sender has given memory that is not there.
    #[error("the sender's memory cannot be read")]
    Unreadable,
}

/// Which of the two parties' memory is not there.
enum Fault {
    Sender,
    Receiver,
}

impl From<BadAddress> for Fault {
    fn from(BadAddress { .. }: BadAddress) -> Self {
        Self::Receiver
    }
}

impl From<BadCopy> for Fault {
    fn from(why: BadCopy) -> Self {
        match why {
            BadCopy::From(_) => Self::Sender,
            BadCopy::To(_) => Self::Receiver,
        }
    }
}

impl Mmio<Net> {
    /// Whether the driver takes frames of which this is still to be done.
    pub fn accepts(&self, offload: &Offload) -> bool {
        let cut = offload.segments.is_none_or(|segments| match segments.family {
            Family::V4 => self.has_agreed(feature::GUEST_TSO4),
            Family::V6 => self.has_agreed(feature::GUEST_TSO6),
        });
        cut && (offload.checksum.is_none() || self.has_agreed(feature::GUEST_CSUM))
    }

    /// The next pieces of memory that the driver has given to receive into, by their addresses and bytes, into `pieces`; how
    /// many there are. They stay with the driver.
    pub fn next_room(&mut self, pieces: &mut [(u64, u64)], memory: &impl GuestMemory) -> usize {
        if !self.is_live(RECEIVE) {
            return 0;
        }
        let rules = self.rules();
        let (queue, Net { room: chain, .. }) = self.queue_and_device(RECEIVE);
        let (mut taken, mut count) = (0, 0);
        // What makes no sense is found when a frame comes.
        // And a driver that offers more meanwhile is not followed beyond what fits in its ring.
        while count < pieces.len()
            && taken < queue.size
            && let Ok(Some(_)) = queue.next(rules, chain, memory)
        {
            taken += 1;
            for (to, from) in pieces[count..].iter_mut().zip(chain.written()) {
                *to = from;
                count += 1;
            }
        }
        queue.put_back(taken);
        count
    }

    /// Has the guest receive a frame of the sender `from`, of which the driver [accepts](Mmio::accepts) what is still to be
    /// done. The driver may be told. A sender whose frames have more than twice the buffers that are free has its frame lost: so
    /// nobody fills the ring so that nothing is left for others. Where the driver says (by the event index) that it waits for a
    /// buffer to be used, it may wait for that before it offers buffers again, and is given the frame. So is a driver that does not
    /// use the event index, or never waits by it: it does not say whether it waits.
    ///
    /// # Errors
    ///
    /// [`Lost`]: it was not received.
    pub fn receive(
        &mut self,
        from: u64,
        frame: &Frame<'_>,
        source: &impl Source,
        memory: &impl GuestMemory,
    ) -> Result<(), Lost> {
        if !self.is_live(RECEIVE) {
            return Err(Lost::NotWorking);
        }
        let received = match self.admits(from, memory) {
            Ok(false) => Ok(Err(Lost::NoRoom)),
            Ok(true) => self.receive_into(frame, source, memory),
            Err(malformed) => Err(malformed),
        };
        let taken = self.queue(RECEIVE).taken();
        self.device_mut().senders.took(from, taken);
        self.unless_malformed(received, Err(Lost::NotWorking))
    }

    fn admits(&mut self, from: u64, memory: &impl GuestMemory) -> Result<bool, Malformed> {
        let rules = self.rules();
        let queue = self.queue(RECEIVE);
        let (offered, taken) = (queue.offered(memory)?, queue.taken());
        let is_admitted = self.device_mut().senders.admits(from, offered, taken);
        Ok(is_admitted || self.queue(RECEIVE).may_be_waited_for(rules, memory)?)
    }

    fn receive_into(
        &mut self,
        frame: &Frame<'_>,
        source: &impl Source,
        memory: &impl GuestMemory,
    ) -> Result<Result<(), Lost>, Malformed> {
        let (rules, merges) = (self.rules(), self.has_agreed(feature::MERGE));
        let total = frame.len().saturating_add(HEADER);
        let (queue, Net { room: chain, .. }) = self.queue_and_device(RECEIVE);
        let mut heads = [0; MOST_BUFFERS];
        let (mut count, mut done, mut places) = (0, 0, [0; 2]);
        while done < total {
            if count == MOST_BUFFERS {
                queue.put_back(count as u16);
                return Ok(Err(Lost::TooLong));
            }
            let Some(head) = queue.next(rules, chain, memory)? else {
                queue.put_back(count as u16);
                return Ok(Err(Lost::NoRoom));
            };
            let room = chain.writable();
            // The header is in the first buffer.
            if chain.readable() != 0 || room == 0 || (count == 0 && room < HEADER) {
                return Err(Malformed);
            }
            if !merges && room < total {
                queue.put_back(1);
                return Ok(Err(Lost::TooLong));
            }
            if count == 0 {
                places = [0, 1].map(|byte| chain.address(BUFFERS + byte).unwrap_or(0));
            }
            let now = room.min(total - done);
            heads[count] = head;
            queue.put_used(count as u16, Used { head, written: now as u32 }, memory)?;
            count += 1;
            match fill(chain, frame, source, (done, now), memory) {
                Ok(()) => {}
                Err(Fault::Sender) => {
                    queue.put_back(count as u16);
                    return Ok(Err(Lost::Unreadable));
                }
                Err(Fault::Receiver) => {
                    // Empty buffers, which the driver takes for nothing: put back, they would be the next again.
                    for (behind, &head) in (0..).zip(&heads[..count]) {
                        queue.put_used(behind, Used { head, written: 0 }, memory)?;
                    }
                    if queue.publish(count as u16, rules, memory)? {
                        self.tell();
                    }
                    return Ok(Err(Lost::Unwritable));
                }
            }
            done += now;
        }
        if count > 1 {
            let bytes = (count as u16).to_le_bytes();
            if places[0].checked_add(1) == Some(places[1]) {
                memory.write(places[0], &bytes)?;
            } else {
                for (place, byte) in places.into_iter().zip(bytes) {
                    memory.write(place, &[byte])?;
                }
            }
        }
        if queue.publish(count as u16, rules, memory)? {
            self.tell();
        }
        Ok(Ok(()))
    }
}

/// Puts `len` bytes of what is received, from `from` on, into a chain.
fn fill(
    chain: &Chain,
    frame: &Frame<'_>,
    source: &impl Source,
    (from, len): (u64, u64),
    memory: &impl GuestMemory,
) -> Result<(), Fault> {
    let header = frame.offload.header(1);
    let mut done = 0;
    while done < len {
        let (at, left) = (from + done, (len - done) as usize);
        let (own, begin): (&[u8], u64) =
            if at < HEADER { (&header, 0) } else { (frame.head, HEADER) };
        let own = own.get((at - begin) as usize..).unwrap_or_default();
        let now = if own.is_empty() {
            let offset = frame.rest.start + (at - HEADER - frame.head.len() as u64);
            chain.each_written(done, left, |to, start, end| {
                let copied = source.copy(offset + start as u64, end - start, (memory, to));
                copied.map_err(Fault::from)
            })?;
            left
        } else {
            let own = &own[..own.len().min(left)];
            chain.write(done, own, memory)?;
            own.len()
        };
        done += now as u64;
    }
    Ok(())
}
