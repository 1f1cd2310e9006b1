//! What became of frames and of flows.

use core::marker::PhantomData;

/// Why a frame goes to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is too short for what it says, or says what makes no sense.
    Malformed,
    /// A checksum of IP or TCP is wrong.
    Checksum,
    /// It is neither ARP nor TCP over IPv4; or it has a VLAN tag.
    Protocol,
    /// It is a part of a packet.
    Fragment,
    /// From outside: it is for another address, or another port. From a fork: it is from another address or port than the
    /// template's, or for another than its client's; or it has options of IP, or bytes beyond its packet.
    Foreign,
    /// From outside: it is from an address that no client can have.
    Source,
    /// It is ARP that nobody needs: an answer or an announcement; or one that lies about its sender.
    Arp,
    /// There is no such flow, and it begins none. From a fork: its flow is over.
    Unknown,
    /// It begins a flow, and there are as many as may be.
    Full,
    /// It begins a flow, and has data with it. Its client sends it again without.
    Data,
    /// It belongs to a flow that is over; or begins it again, and is older.
    Late,
    /// A fork has sent it before it was given its SYN; or it begins a connection of its own.
    Early,
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a FIN of each side.
    Closed,
    /// With a RST of the client.
    Reset,
    /// With a RST of the fork, which was no answer to a guess.
    Refused,
    /// With a RST of the client, before the fork was there.
    Cancelled,
    /// The client has not completed the handshake.
    HalfOpen,
    /// Nothing has come of the client for a long time.
    Abandoned,
    /// It has lasted for as long as a flow may.
    TooLong,
    /// There was no fork for it, or the fork ended by itself.
    Failed,
}

/// How many of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally<K, const N: usize> {
    by: [u64; N],
    kind: PhantomData<K>,
}

impl<K, const N: usize> Tally<K, N> {
    pub(crate) const NONE: Self = Self { by: [0; N], kind: PhantomData };

    fn add(&mut self, place: usize) {
        if let Some(count) = self.by.get_mut(place) {
            *count += 1;
        }
    }

    fn at(&self, place: usize) -> u64 {
        self.by.get(place).copied().unwrap_or(0)
    }

    /// How many of all kinds.
    pub fn total(&self) -> u64 {
        self.by.iter().sum()
    }
}

macro_rules! kinds {
    ($kind:ident, $count:literal, [$($each:ident),* $(,)?]) => {
        impl $kind {
            /// All of them.
            pub const ALL: [Self; $count] = [$(Self::$each),*];
        }

        impl Tally<$kind, $count> {
            /// How many of a kind.
            pub fn of(&self, kind: $kind) -> u64 {
                self.at(kind as usize)
            }

            pub(crate) fn count(&mut self, kind: $kind) {
                self.add(kind as usize);
            }
        }
    };
}

kinds!(
    Dropped,
    12,
    [
        Malformed, Checksum, Protocol, Fragment, Foreign, Source, Arp, Unknown, Full, Data, Late,
        Early
    ]
);
kinds!(End, 8, [Closed, Reset, Refused, Cancelled, HalfOpen, Abandoned, TooLong, Failed]);

/// What became of all frames and flows.
///
/// Of frames from outside, `asked`, `repeated`, `delivered`, `answered` and `dropped` are all. Of frames of forks, `sent`,
/// `told` and `refused` are all. Of flows, `asked` are those that have ended, and those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// SYNs that have asked for a fork.
    pub asked: u64,
    /// SYNs that came again, or in the place of another, before the fork was there.
    pub repeated: u64,
    /// Frames from outside that went to a fork, and those that cancelled one. The SYNs that were kept are not among them.
    pub delivered: u64,
    /// Frames from outside that the dispatcher has answered itself.
    pub answered: u64,
    /// Frames from outside that went to nobody.
    pub dropped: Tally<Dropped, 12>,
    /// Frames of forks that went out.
    pub sent: u64,
    /// Frames of forks that the dispatcher has answered itself.
    pub told: u64,
    /// Frames of forks that went to nobody.
    pub refused: Tally<Dropped, 12>,
    /// Forks that were given their SYN.
    pub forked: u64,
    /// Forks that nobody waited for any more when they were there. With `forked`, that is all that were made.
    pub in_vain: u64,
    /// How flows ended.
    pub ended: Tally<End, 8>,
}

impl Counts {
    pub(crate) const NONE: Self = Self {
        asked: 0,
        repeated: 0,
        delivered: 0,
        answered: 0,
        dropped: Tally::NONE,
        sent: 0,
        told: 0,
        refused: Tally::NONE,
        forked: 0,
        in_vain: 0,
        ended: Tally::NONE,
    };
}
