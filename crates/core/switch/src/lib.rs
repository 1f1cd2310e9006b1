//! A switch between the network cards of virtual machines, and the card of the machine itself: which of them a frame goes
//! to.
//!
//! ```
//! use mayfly_switch::{Config, Limits, Place, Switch};
//!
//! let mut switch = Switch::new();
//! let config =
//!     |mac| Config { place: Place::Card(mac), network: 0, isolated: false, limits: Limits::NONE };
//! let one = switch.try_add(config([2, 0, 0, 0, 0, 1]), "one", 0)?;
//! let other = switch.try_add(config([2, 0, 0, 0, 0, 2]), "other", 0)?;
//!
//! // To `other`, from `one`, an ARP message.
//! let head = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6];
//! let mut targets = switch.forward(one, head, 60, 0).unwrap();
//! assert_eq!(switch.next_target(&mut targets), Some((other, "other")));
//! assert_eq!(switch.next_target(&mut targets), None);
//! # Ok::<(), mayfly_switch::NoPort>(())
//! ```
//!
//! **An uplink** is a port that leads out of the machine. A network has one at most, and every card has an address that is
//! known. So nothing is learnt from what comes in: an address that no card has is behind the uplink. A frame for such an
//! address goes there, and nowhere else. What comes in from a card's own address is refused: its sender took that
//! address, or sends back what it was sent.
//!
//! The embedder has a lock around it, and holds that for a decision, not while it copies a frame. So ports may come and
//! go while a frame is under way. A port is known by a number that no other port has had; and [`Switch::next_target`]
//! leaves out ports that were not there when the frame was sent. So a frame never reaches a port that has taken the place
//! of another.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod limits;

use alloc::vec::Vec;

pub use limits::Limits;

use limits::Buckets;

/// The most ports.
pub const MAX_PORTS: usize = 256;

/// A card's address.
pub type Mac = [u8; 6];

/// What a frame begins with: the address that it is for, the one that it is from, and what it is.
pub type Head = [u8; 14];

/// A port, by a number that no other port has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(u64);

impl Port {
    /// Its number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Where a port leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To a card, which has this address, and sends from no other.
    Card(Mac),
    /// Out of the machine: to any address that no card has.
    Uplink,
}

/// What a port is to be.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Where it leads.
    pub place: Place,
    /// Its network: it reaches ports of this network alone.
    pub network: u32,
    /// It reaches no other isolated port.
    pub isolated: bool,
    /// What it may send.
    pub limits: Limits,
}

/// Why a port is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPort {
    /// Another port of the network has that address.
    #[error("another card of this network has that address")]
    Taken,
    /// The address is one of many cards, or of none.
    #[error("no card can have that address: its first byte is odd, or all are zero")]
    NotOne,
    /// The network leads out of the machine already.
    #[error("the network has an uplink already")]
    TwoUplinks,
    /// There are [`MAX_PORTS`] ports, or there is no memory for one more.
    #[error("the switch has no room for another card")]
    Full,
}

/// Why a frame goes to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// There is no such port any more.
    Gone,
    /// It is from another address than its port's; or it came in by the uplink from that of a card, or from one of many
    /// cards.
    Foreign,
    /// Its port has sent as much as it may.
    Limited,
    /// No port that it may go to has the address that it is for.
    Unknown,
}

/// What became of the frames of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that it has sent, and that have gone to some port.
    pub sent: u64,
    /// Bytes of those.
    pub sent_bytes: u64,
    /// Frames that it has received.
    pub received: u64,
    /// Bytes of those.
    pub received_bytes: u64,
    /// Frames for it that it had no room for.
    pub lost: u64,
    /// Frames that it has sent from an address that is not behind it, or that made no sense.
    pub refused: u64,
    /// Frames that it has sent beyond its limits.
    pub limited: u64,
    /// Frames that it has sent to an address that no port has that it reaches.
    pub unknown: u64,
}

impl Counts {
    /// None.
    pub const NONE: Self = Self {
        sent: 0,
        sent_bytes: 0,
        received: 0,
        received_bytes: 0,
        lost: 0,
        refused: 0,
        limited: 0,
        unknown: 0,
    };
}

impl core::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.lost += other.lost;
        self.refused += other.refused;
        self.limited += other.limited;
        self.unknown += other.unknown;
    }
}

#[derive(Debug)]
struct Slot<T> {
    port: Port,
    config: Config,
    buckets: Buckets,
    counts: Counts,
    end: T,
}

/// The ports that a frame goes to.
#[derive(Clone, Debug)]
pub struct Targets {
    from: Port,
    network: u32,
    isolated: bool,
    /// Ports that have come since have this number, or a greater one.
    before: u64,
    to: To,
    /// The number of the next port that is looked at.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
enum To {
    Card(Mac),
    Uplink,
    All,
}

/// A switch, whose ports lead to the embedder's `T`.
#[derive(Debug)]
pub struct Switch<T> {
    slots: Vec<Slot<T>>,
    /// The number of the next port.
    number: u64,
}

impl<T> Default for Switch<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Switch<T> {
    /// Without ports.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), number: 0 }
    }

    fn place(&self, port: Port) -> Option<usize> {
        // In the order of their numbers.
        self.slots.binary_search_by_key(&port.0, |slot| slot.port.0).ok()
    }

    fn slot(&mut self, port: Port) -> Option<&mut Slot<T>> {
        let place = self.place(port)?;
        self.slots.get_mut(place)
    }

    /// Adds a port, which leads to `end`. `now` is the time, in nanoseconds.
    ///
    /// # Errors
    ///
    /// [`NoPort`].
    pub fn try_add(&mut self, config: Config, end: T, now: u64) -> Result<Port, NoPort> {
        let Config { place, network, .. } = config;
        if matches!(place, Place::Card(mac) if !is_one(mac)) {
            return Err(NoPort::NotOne);
        }
        if self.has(place, network) {
            return Err(match place {
                Place::Card(_) => NoPort::Taken,
                Place::Uplink => NoPort::TwoUplinks,
            });
        }
        if self.slots.len() == MAX_PORTS || self.slots.try_reserve(1).is_err() {
            return Err(NoPort::Full);
        }
        let port = Port(self.number);
        self.number += 1;
        let (buckets, counts) = (Buckets::new(config.limits, now), Counts::default());
        self.slots.push(Slot { port, config, buckets, counts, end });
        Ok(port)
    }

    /// Takes a port away; what it led to, if it was there. Without ports a switch has no memory.
    pub fn remove(&mut self, port: Port) -> Option<T> {
        let place = self.place(port)?;
        let slot = self.slots.remove(place);
        if self.slots.is_empty() {
            self.slots = Vec::new();
        }
        Some(slot.end)
    }

    fn has(&self, place: Place, network: u32) -> bool {
        self.slots
            .iter()
            .any(|Slot { config, .. }| (config.place, config.network) == (place, network))
    }

    /// Whether a network has a card.
    pub fn has_cards(&self, network: u32) -> bool {
        let is_card = |config: &Config| matches!(config.place, Place::Card(_));
        self.slots.iter().any(|Slot { config, .. }| config.network == network && is_card(config))
    }

    /// Whether it has no ports.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What became of a port's frames, while it is there.
    pub fn counts(&self, port: Port) -> Option<Counts> {
        Some(self.slots.get(self.place(port)?)?.counts)
    }

    /// A port sends a frame of `len` bytes at `now`, in nanoseconds. Where it goes to.
    ///
    /// # Errors
    ///
    /// Why it goes to nobody. It is counted.
    pub fn forward(
        &mut self,
        from: Port,
        head: Head,
        len: u64,
        now: u64,
    ) -> Result<Targets, Dropped> {
        let [mac, by] = [0, 6].map(|at| {
            let mut mac = [0; 6];
            mac.copy_from_slice(&head[at..at + 6]);
            mac
        });
        let before = self.number;
        let config =
            self.slots.get(self.place(from).ok_or(Dropped::Gone)?).ok_or(Dropped::Gone)?.config;
        let is_its = match config.place {
            Place::Card(own) => by == own,
            Place::Uplink => is_one(by) && !self.has(Place::Card(by), config.network),
        };
        let slot = self.slot(from).ok_or(Dropped::Gone)?;
        if !is_its {
            slot.counts.refused += 1;
            return Err(Dropped::Foreign);
        }
        if !slot.buckets.take(len, now) {
            slot.counts.limited += 1;
            return Err(Dropped::Limited);
        }
        let Config { network, isolated, .. } = config;
        let to = match () {
            () if mac[0] & 1 != 0 => To::All,
            () if self.has(Place::Card(mac), network) => To::Card(mac),
            () => To::Uplink,
        };
        let targets = Targets { from, network, isolated, before, to, next: 0 };
        let is_known = !is_reserved(mac) && self.slots.iter().any(|slot| targets.has(slot));
        let slot = self.slot(from).ok_or(Dropped::Gone)?;
        if !is_known {
            slot.counts.unknown += 1;
            return Err(Dropped::Unknown);
        }
        slot.counts.sent += 1;
        slot.counts.sent_bytes += len;
        Ok(targets)
    }

    /// Sets what a port may send from now on.
    pub fn limit(&mut self, port: Port, limits: Limits, now: u64) {
        if let Some(slot) = self.slot(port) {
            slot.config.limits = limits;
            slot.buckets = Buckets::new(limits, now);
        }
    }

    /// A port has sent what makes no sense.
    pub fn refuse(&mut self, from: Port) {
        if let Some(slot) = self.slot(from) {
            slot.counts.refused += 1;
        }
    }

    /// A port has received a frame of `len` bytes, or has lost it.
    pub fn count(&mut self, to: Port, len: u64, received: bool) {
        let Some(Slot { counts, .. }) = self.slot(to) else { return };
        if received {
            counts.received += 1;
            counts.received_bytes += len;
        } else {
            counts.lost += 1;
        }
    }
}

impl<T: Clone> Switch<T> {
    /// The next port that a frame goes to, of those that were there when it was sent, and still are.
    pub fn next_target(&self, targets: &mut Targets) -> Option<(Port, T)> {
        let slot =
            self.slots.iter().find(|slot| slot.port.0 >= targets.next && targets.has(slot))?;
        targets.next = slot.port.0 + 1;
        Some((slot.port, slot.end.clone()))
    }
}

impl Targets {
    fn has<T>(&self, slot: &Slot<T>) -> bool {
        let Config { place, network, isolated, .. } = slot.config;
        let reaches = network == self.network && !(isolated && self.isolated);
        let is_for = match self.to {
            To::Card(mac) => place == Place::Card(mac),
            To::Uplink => place == Place::Uplink,
            To::All => true,
        };
        reaches && is_for && slot.port != self.from && slot.port.0 < self.before
    }
}

/// Whether an address is one that a card can have.
const fn is_one(mac: Mac) -> bool {
    mac[0] & 1 == 0 && !matches!(mac, [0, 0, 0, 0, 0, 0])
}

/// Whether an address is for the bridge itself, which passes nothing on that is for it (IEEE 802.1Q, table 8-1).
fn is_reserved(mac: Mac) -> bool {
    matches!(mac, [0x01, 0x80, 0xc2, 0x00, 0x00, 0x00..=0x0f])
}
