//! What a dispatcher is to be, and what can be none.

use crate::frame::{is_client, is_one};
use crate::{Ip, Mac};

/// The most flows that there can be, with those that are remembered.
pub const MOST_SLOTS: u16 = 1024;

const SECOND: u64 = 1_000_000_000;

/// After how many nanoseconds what ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// A flow whose handshake is not complete, since its first SYN. The time that making the fork takes is part of it.
    pub half_open: u64,
    /// A flow of which the client has acknowledged nothing any more.
    pub abandoned: u64,
    /// Any flow, since its first SYN, half open or not.
    pub longest: u64,
    /// What is remembered of a flow that is over.
    pub remembered: u64,
}

impl Timers {
    /// 10 s, a minute, ten minutes, and 5 s.
    pub const DEFAULT: Self = Self {
        half_open: 10 * SECOND,
        abandoned: 60 * SECOND,
        longest: 600 * SECOND,
        remembered: 5 * SECOND,
    };
}

/// What a dispatcher is to be.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The template's address, which all forks have.
    pub mac: Mac,
    /// Its IP address.
    pub ip: Ip,
    /// The port at which it answers. No other begins a flow.
    pub port: u16,
    /// How many flows may have a fork, or wait for one; and how many forks there may be in the making, needed or not.
    pub flows: u16,
    /// How many that are over are remembered at least, until their time is up. With `flows`, at most [`MOST_SLOTS`].
    pub remembered: u16,
    /// When what ends.
    pub timers: Timers,
}

/// Why there is no dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDispatcher {
    /// The address is one of many cards, or of none; or that of IP is none that a machine can have.
    #[error("no card can have that address")]
    Address,
    /// No connection has port 0.
    #[error("port 0 is none")]
    Port,
    /// There would be no flow, or more than [`MOST_SLOTS`].
    #[error("there must be 1 to {MOST_SLOTS} flows, with those that are remembered")]
    Flows,
    /// There is no memory for the flows.
    #[error("out of memory")]
    Memory,
}

impl Config {
    /// How many slots its flows need.
    pub(crate) fn slots(&self) -> Result<u16, NoDispatcher> {
        if !is_one(self.mac) || !is_client(self.ip) {
            return Err(NoDispatcher::Address);
        }
        if self.port == 0 {
            return Err(NoDispatcher::Port);
        }
        let slots = self.flows.checked_add(self.remembered).filter(|&slots| slots <= MOST_SLOTS);
        slots.filter(|_| self.flows > 0).ok_or(NoDispatcher::Flows)
    }
}
