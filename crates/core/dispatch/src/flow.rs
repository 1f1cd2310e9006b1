//! What is known of one flow: how far its handshake is, and whose FIN the other side has acknowledged.
//!
//! Sequence numbers go round. So one is beyond another if the difference is less than half of all numbers (RFC 9293,
//! section 3.4).

use crate::Mac;
use crate::counts::End;
use crate::frame::Segment;

/// The most bytes that are kept of a flow: a TCP segment without data, with all options that headers have room for.
pub const KEPT_BYTES: usize = 14 + 60 + 60;

/// The largest window that TCP can have (RFC 7323, section 2.3): what is further behind is not acceptable.
const WINDOW: u32 = 1 << 30;

/// How far a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Asked,
    Opening,
    Open,
    Over,
    /// It has ended while its fork was being made, and has its place until that is there, or will never be.
    Vain,
}

pub(crate) struct State {
    pub(crate) stage: Stage,
    /// The next hop, by which its SYN came.
    pub(crate) mac: Mac,
    pub(crate) begun: u64,
    pub(crate) deadline: u64,
    /// The first bytes are a frame: the SYN, and once the fork has acknowledged the client's FIN, that acknowledgement.
    kept: [u8; KEPT_BYTES],
    len: usize,
    /// The sequence number after what the client has sent without a gap.
    client_next: u32,
    client_fin: Fin,
    /// What the fork has acknowledged.
    acked: Option<u32>,
    /// After the fork's SYN.
    fork: Option<Sent>,
    fork_fin: Fin,
}

/// What the fork has sent: all before `next`, and acknowledged by the client are all before `unacked`.
#[derive(Clone, Copy)]
struct Sent {
    unacked: u32,
    next: u32,
}

/// A side's FIN.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fin {
    None,
    /// The sequence number after it.
    Sent(u32),
    Acked(u32),
}

impl Fin {
    /// It has been sent, up to `end`. It takes the place of another if it is in order: of two that are not, either may be
    /// a guess of somebody who has seen nothing.
    fn send(&mut self, end: u32, is_in_order: bool) {
        match self {
            Self::Acked(_) => {}
            Self::Sent(_) if !is_in_order => {}
            Self::Sent(_) | Self::None => *self = Self::Sent(end),
        }
    }

    /// The other side has acknowledged what is before `ack`.
    fn acknowledge(&mut self, ack: u32) {
        if *self == Self::Sent(ack) {
            *self = Self::Acked(ack);
        }
    }

    const fn is_acked(self) -> bool {
        matches!(self, Self::Acked(_))
    }
}

/// Whether a sequence number is that of another, or beyond.
const fn reaches(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) < 1 << 31
}

impl State {
    /// Of a SYN without data.
    pub(crate) fn new(syn: &Segment<'_>, begun: u64, deadline: u64) -> Self {
        let mut state = Self {
            stage: Stage::Asked,
            mac: syn.from,
            begun,
            deadline,
            kept: [0; KEPT_BYTES],
            len: 0,
            client_next: 0,
            client_fin: Fin::None,
            acked: None,
            fork: None,
            fork_fin: Fin::None,
        };
        state.begin(syn);
        state
    }

    /// Whether it has not ended.
    pub(crate) const fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Asked | Stage::Opening | Stage::Open)
    }

    /// Takes this SYN for the one that it had, if it is another.
    pub(crate) fn begin(&mut self, syn: &Segment<'_>) {
        self.mac = syn.from;
        self.client_next = syn.end();
        self.keep(syn);
    }

    fn keep(&mut self, syn: &Segment<'_>) {
        let len = syn.frame.len();
        // Headers, which are never longer.
        let Some(kept) = self.kept.get_mut(..len) else { return };
        kept.copy_from_slice(syn.frame);
        self.len = len;
    }

    /// What is kept: the SYN, or the last acknowledgement.
    pub(crate) fn kept(&self) -> &[u8] {
        self.kept.get(..self.len).unwrap_or_default()
    }

    /// Whether a RST is the client's: it has the number that is next.
    pub(crate) fn resets(&self, rst: &Segment<'_>) -> bool {
        rst.seq == self.client_next || self.acked == Some(rst.seq)
    }

    /// The client has sent a segment, which is no RST and no SYN. Returns whether it has acknowledged something that the
    /// fork has sent, and no less than it had before.
    pub(crate) fn hear_client(&mut self, segment: &Segment<'_>) -> bool {
        let (Some(ack), Some(fork)) = (segment.ack, &mut self.fork) else { return false };
        if fork.next.wrapping_sub(ack) >= WINDOW {
            return false;
        }
        let (end, next) = (segment.end(), self.client_next);
        let is_in_order = reaches(next, segment.seq) && reaches(end, next);
        if segment.fin {
            self.client_fin.send(end, is_in_order);
        }
        if !reaches(ack, fork.unacked) {
            return false;
        }
        fork.unacked = ack;
        self.fork_fin.acknowledge(ack);
        if is_in_order {
            self.client_next = end;
        }
        true
    }

    /// The fork has sent a segment, which is no RST.
    pub(crate) fn hear_fork(&mut self, segment: &Segment<'_>) {
        let end = segment.end();
        if let Some(ack) = segment.ack {
            if self.acked.is_none_or(|acked| reaches(ack, acked)) {
                self.acked = Some(ack);
            }
            if reaches(ack, self.client_next) {
                // It has what came through a gap that is filled by now.
                self.client_next = ack;
            }
            self.client_fin.acknowledge(ack);
            if segment.syn && self.stage == Stage::Opening {
                // It says which SYN it has taken.
                self.client_next = ack;
                let after = segment.seq.wrapping_add(1);
                self.fork = Some(Sent { unacked: after, next: after });
            }
        }
        if let Some(fork) = &mut self.fork
            && reaches(end, fork.next)
        {
            fork.next = end;
        }
        if segment.fin {
            self.fork_fin.send(end, true);
        }
        if let (Fin::Acked(fin), Some(fork)) = (self.client_fin, self.fork)
            && segment.ack == Some(fin)
            && let Some(len) = segment.write_acknowledgement(fork.next, &mut self.kept)
        {
            self.len = len;
        }
    }

    /// Whether a RST of the fork ends the flow. One without an acknowledgement answers a segment, and has the number that
    /// this acknowledged (RFC 9293, section 3.10.7.4): where the fork has sent nothing of the kind, it is about somebody's
    /// guess, and the fork's TCP goes on.
    pub(crate) fn refuses(&self, rst: &Segment<'_>) -> bool {
        let is_of_sent = |fork: Sent| {
            let sent = fork.next.wrapping_sub(fork.unacked);
            rst.seq.wrapping_sub(fork.unacked) <= sent
        };
        rst.ack.is_some() || self.fork.is_some_and(is_of_sent)
    }

    /// How it has ended, if each side's FIN has been acknowledged.
    pub(crate) fn end(&self) -> Option<End> {
        (self.client_fin.is_acked() && self.fork_fin.is_acked()).then_some(End::Closed)
    }

    /// Of one that is over: whether a segment is the client's FIN again, which what is kept answers.
    pub(crate) fn is_last_again(&self, segment: &Segment<'_>) -> bool {
        let is_fin = segment.fin && !segment.syn && !segment.rst;
        is_fin && self.client_fin == Fin::Acked(segment.end())
    }

    /// Of one that is over: whether a SYN begins another, and is no duplicate of an older one.
    pub(crate) fn is_before(&self, syn: &Segment<'_>) -> bool {
        matches!(self.client_fin, Fin::Acked(fin) if reaches(syn.seq, fin))
    }
}
