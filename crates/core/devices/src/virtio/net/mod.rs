//! A network card: virtio 1.2, 5.1. It has one pair of queues, and a control queue.
//!
//! A card sends and receives for its embedder, which carries frames from one card to another. A frame that a guest sends
//! is a [`Packet`], which stays in that guest's memory until the embedder has given it to the receivers
//! ([`Mmio::take`], [`Mmio::give_back`]). A receiver's card puts it where its driver has room ([`Mmio::receive`]). A
//! driver without room loses the frame, and nobody waits for it.
//!
//! Guests leave checksums, and the cutting of long TCP segments, to the device (an [`Offload`]). A card whose driver takes
//! such frames gets them as they are. For another, [`finish`] cuts them and computes the checksums.

mod control;
mod finish;
mod header;
mod receive;
mod senders;
mod transmit;

pub use finish::finish;
pub use header::{BadPacket, Checksum, Family, Offload, Segments};
pub use receive::{Frame, Lost};
pub use transmit::{FRAME_HEAD, Packet, Source};

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::backend::{Backend, sealed};
use super::chain::{Chain, Malformed};
use super::mmio::Mmio;
use crate::memory::GuestMemory;
use senders::Senders;

/// The queues, by number.
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;
const CONTROL: usize = 2;

/// The bytes of a frame at least and at most, with a VLAN tag and without the frame check sequence.
const LEAST_FRAME: u64 = 14;
const MOST_FRAME: u64 = 1518;
/// The same of one that is still to be cut.
const MOST_UNCUT: u64 = 18 + 0xffff;

mod feature {
    pub(super) const CSUM: u64 = 1 << 0;
    pub(super) const GUEST_CSUM: u64 = 1 << 1;
    pub(super) const MAC: u64 = 1 << 5;
    pub(super) const GUEST_TSO4: u64 = 1 << 7;
    pub(super) const GUEST_TSO6: u64 = 1 << 8;
    pub(super) const HOST_TSO4: u64 = 1 << 11;
    pub(super) const HOST_TSO6: u64 = 1 << 12;
    pub(super) const MERGE: u64 = 1 << 15;
    pub(super) const STATUS: u64 = 1 << 16;
    pub(super) const CONTROL: u64 = 1 << 17;
    pub(super) const CONTROL_RX: u64 = 1 << 18;
    pub(super) const ANNOUNCE: u64 = 1 << 21;

    pub(super) const ALL: u64 = CSUM
        | GUEST_CSUM
        | MAC
        | GUEST_TSO4
        | GUEST_TSO6
        | HOST_TSO4
        | HOST_TSO6
        | MERGE
        | STATUS
        | CONTROL
        | CONTROL_RX
        | ANNOUNCE;

    /// What is not taken without another: virtio 1.2, 5.1.3.1.
    pub(super) const NEEDS: [(u64, u64); 6] = [
        (GUEST_TSO4, GUEST_CSUM),
        (GUEST_TSO6, GUEST_CSUM),
        (HOST_TSO4, CSUM),
        (HOST_TSO6, CSUM),
        (CONTROL_RX, CONTROL),
        (ANNOUNCE, CONTROL),
    ];
}

/// Bits of the status in the configuration.
const LINK_UP: u8 = 1;
const ANNOUNCE: u8 = 2;

/// A card's address.
pub type Mac = [u8; 6];

/// A network card.
#[derive(Debug)]
pub struct Net {
    mac: Mac,
    /// Its driver is to announce itself, and has not done so.
    announces: bool,
    /// It is on a network.
    is_up: bool,
    /// Whose frames are in its driver's ring.
    senders: Senders,
    /// Where a frame goes, while it is received: its sender's stack has no room for that.
    room: Chain,
}

impl Net {
    /// A card with that address, which is on a network.
    pub const fn new(mac: Mac) -> Self {
        Self { mac, announces: false, is_up: true, senders: Senders::new(0), room: Chain::new() }
    }

    /// Its address.
    pub const fn mac(&self) -> Mac {
        self.mac
    }
}

impl sealed::Device for Net {}

impl Backend for Net {
    const ID: u32 = 1;
    const QUEUES: usize = 3;
    const SERVED: Option<usize> = Some(CONTROL);
    const CHANGED: &'static [u64] = &[0x104];

    fn features(&self) -> u64 {
        feature::ALL
    }

    fn may_take(&self, features: u64) -> bool {
        feature::NEEDS.iter().all(|(of, other)| features & of == 0 || features & other != 0)
    }

    fn reset(&mut self) {
        self.announces = false;
    }

    fn forget(&mut self, queue: usize) {
        if queue == RECEIVE {
            self.senders = Senders::new(0);
        }
    }

    fn config(&self, offset: u64) -> u8 {
        match offset {
            0..6 => self.mac[offset as usize],
            6 => {
                let bit = |is_set, bit| if is_set { bit } else { 0 };
                bit(self.is_up, LINK_UP) | bit(self.announces, ANNOUNCE)
            }
            _ => 0,
        }
    }

    /// The address that the guest knows the card by, whether it is to announce it, and whether it was told of a network.
    type Saved = (Mac, bool, bool);

    fn state(&self) -> Self::Saved {
        (self.mac, self.announces, self.is_up)
    }

    fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.bytes(&self.mac);
        to.flag(self.announces);
        to.flag(self.is_up);
    }

    fn saved(&self, from: &mut SectionReader<'_>) -> Result<Self::Saved, Error> {
        Ok((from.bytes("address")?, from.flag("announces")?, from.flag("link")?))
    }

    fn adopt(&mut self, (mac, announces, is_up): Self::Saved) {
        (self.mac, self.announces, self.is_up) = (mac, announces, is_up);
        self.senders = Senders::new(0);
    }

    fn serve(
        &mut self,
        chain: &Chain,
        _features: u64,
        memory: &impl GuestMemory,
    ) -> Result<u32, Malformed> {
        self.command(chain, memory)
    }
}

impl Mmio<Net> {
    /// Whether it is on a network, from now on; the driver is told of a change. A card that is not sends and receives as its
    /// embedder has it: a driver that does not look whether there is a network goes on as before.
    pub fn set_link(&mut self, is_up: bool) {
        if core::mem::replace(&mut self.device_mut().is_up, is_up) != is_up
            && self.has_agreed(feature::STATUS)
        {
            self.tell_of_configuration();
        }
    }

    /// Has the driver announce its addresses to the network, as after a migration, where it knows how to.
    pub fn announce(&mut self) {
        if self.has_agreed(feature::ANNOUNCE) {
            self.device_mut().announces = true;
            self.tell_of_configuration();
        }
    }
}
