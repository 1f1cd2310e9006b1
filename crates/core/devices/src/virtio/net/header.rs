//! What stands before a frame in a driver's buffers: virtio 1.2, 5.1.6.

use super::{LEAST_FRAME, MOST_FRAME, MOST_UNCUT, feature};

/// The bytes of a header.
pub(super) const HEADER: u64 = 12;
/// Where in it the number of buffers is that a frame has taken.
pub(super) const BUFFERS: u64 = 10;

const NEEDS_CHECKSUM: u8 = 1;
const NOT_CUT: u8 = 0;
const TCP4: u8 = 1;
const TCP6: u8 = 4;

/// The least size that a frame is cut to: a smaller one makes work, and no sense.
const LEAST_SIZE: u16 = 32;

/// A packet of a guest's that makes no sense, or that it was not offered to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet is malformed")]
pub struct BadPacket;

/// A checksum that is still to be computed: over all from `start` on, into the two bytes at `start + offset`, which hold
/// what its pseudo-header sums up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Where it begins, in bytes from the beginning of the frame.
    pub start: u16,
    /// Where it belongs, from there.
    pub offset: u16,
}

/// The version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Version 4.
    V4,
    /// Version 6.
    V6,
}

/// A TCP segment that is still to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Over which IP.
    pub family: Family,
    /// The bytes of data that a segment has at most, at least 32.
    pub size: u16,
    /// How many bytes its sender says that the headers have: a hint.
    pub headers: u16,
}

/// What the sender of a frame has left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The checksum.
    pub checksum: Option<Checksum>,
    /// The cutting; then there is a checksum, too.
    pub segments: Option<Segments>,
}

impl Offload {
    /// From the header of a frame of `len` bytes, whose driver has taken these features.
    pub(super) fn parse(
        header: [u8; HEADER as usize],
        len: u64,
        features: impl Fn(u64) -> bool,
    ) -> Result<Self, BadPacket> {
        let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let [flags, kind, ..] = header;
        let cut = |family| Segments { family, size: number(4), headers: number(2) };
        let segments = match kind {
            NOT_CUT => None,
            TCP4 if features(feature::HOST_TSO4) => Some(cut(Family::V4)),
            TCP6 if features(feature::HOST_TSO6) => Some(cut(Family::V6)),
            _ => return Err(BadPacket),
        };
        let checksum = match flags {
            0 => None,
            NEEDS_CHECKSUM if features(feature::CSUM) => {
                Some(Checksum { start: number(6), offset: number(8) })
            }
            _ => return Err(BadPacket),
        };
        let ends = |sum: Checksum| u64::from(sum.start) + u64::from(sum.offset) + 2 <= len;
        let most = if segments.is_some() { MOST_UNCUT } else { MOST_FRAME };
        let makes_sense = (LEAST_FRAME..=most).contains(&len)
            && checksum.is_none_or(ends)
            && segments.is_none_or(|cut| cut.size >= LEAST_SIZE && checksum.is_some());
        if makes_sense { Ok(Self { checksum, segments }) } else { Err(BadPacket) }
    }

    /// The header of a frame in `buffers` buffers.
    pub(super) fn header(&self, buffers: u16) -> [u8; HEADER as usize] {
        let mut header = [0; HEADER as usize];
        let mut put = |at: usize, number: u16| {
            header[at..at + 2].copy_from_slice(&number.to_le_bytes());
        };
        if let Some(Checksum { start, offset }) = self.checksum {
            put(0, NEEDS_CHECKSUM.into());
            put(6, start);
            put(8, offset);
        }
        if let Some(Segments { size, headers, .. }) = self.segments {
            put(2, headers);
            put(4, size);
        }
        put(BUFFERS as usize, buffers);
        header[1] = match self.segments {
            None => NOT_CUT,
            Some(Segments { family: Family::V4, .. }) => TCP4,
            Some(Segments { family: Family::V6, .. }) => TCP6,
        };
        header
    }
}
