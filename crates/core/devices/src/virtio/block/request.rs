//! What a driver asks of a disk, and how the disk answers.

use super::{Clearing, HEADER, ID_BYTES, MAX_DATA, SECTOR, Status};
use crate::memory::GuestMemory;
use crate::virtio::chain::{Chain, Malformed};

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

/// What a range has, of those that are discarded or zeroed: its first sector, how many it has, and flags.
const RANGE: usize = 16;
const UNMAP: u32 = 1;

/// What requests are held against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) sectors: u64,
    pub(super) is_read_only: bool,
    /// What the driver has taken of it.
    pub(super) clearing: Clearing,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Read from this byte of the disk on all that is writable but the status.
    Read(u64),
    /// Write to this byte of the disk on all that is readable but the header.
    Write(u64),
    Flush,
    /// Give up so many bytes from this byte of the disk on.
    Discard(u64, u64),
    /// Have so many bytes from this byte of the disk on be zero; and whether they may be given up, too.
    Zero(u64, u64, bool),
    Id,
    /// Nothing but this answer.
    Wrong(Status),
}

impl Order {
    /// The order of a chain to a disk of that shape. It is read once.
    pub(super) fn parse(
        chain: &Chain,
        shape: Shape,
        memory: &impl GuestMemory,
    ) -> Result<Self, Malformed> {
        let Shape { sectors, is_read_only, clearing } = shape;
        if chain.readable() < HEADER || chain.writable() == 0 {
            return Err(Malformed);
        }
        let mut header = [0; HEADER as usize];
        chain.read(0, &mut header, memory)?;
        let [kind, sector] = [0, 8].map(|at| {
            header[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
        });
        let wrong = Self::Wrong(Status::Error);
        Ok(match kind as u32 {
            READ => data(sectors, sector, chain.writable() - 1).map_or(wrong, Self::Read),
            WRITE if is_read_only => wrong,
            WRITE => data(sectors, sector, chain.readable() - HEADER).map_or(wrong, Self::Write),
            FLUSH => Self::Flush,
            GET_ID => Self::Id,
            DISCARD if clearing.discards > 0 => {
                Self::clear(chain, sectors, clearing.discards, 0, memory)?
                    .map_or_else(Self::Wrong, |(start, len, _)| Self::Discard(start, len))
            }
            WRITE_ZEROES if clearing.zeroes > 0 => {
                Self::clear(chain, sectors, clearing.zeroes, UNMAP, memory)?.map_or_else(
                    Self::Wrong,
                    |(start, len, flags)| {
                        Self::Zero(start, len, flags & UNMAP != 0 && clearing.unmaps)
                    },
                )
            }
            _ => Self::Wrong(Status::Unsupported),
        })
    }

    /// The one range that is to be cleared: its first byte, its bytes, and its flags, which are of those that are known; or
    /// why it is not. A flag that is not known is not supported (virtio 1.2, 5.2.6.2).
    fn clear(
        chain: &Chain,
        sectors: u64,
        most: u32,
        known: u32,
        memory: &impl GuestMemory,
    ) -> Result<Result<(u64, u64, u32), Status>, Malformed> {
        if chain.readable() - HEADER != RANGE as u64 {
            return Ok(Err(Status::Error));
        }
        let mut range = [0; RANGE];
        chain.read(HEADER, &mut range, memory)?;
        let number = |from: usize, to: usize| {
            range[from..to].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        let (first, count, flags) = (number(0, 8), number(8, 12), number(12, 16) as u32);
        if flags & !known != 0 {
            return Ok(Err(Status::Unsupported));
        }
        let len = count * SECTOR;
        let start = place(sectors, first, len).filter(|_| count <= most.into());
        Ok(start.map(|start| (start, len, flags)).ok_or(Status::Error))
    }
}

/// The same as [`place`], of data in memory, of which a request has so much at most.
fn data(sectors: u64, sector: u64, len: u64) -> Option<u64> {
    place(sectors, sector, len).filter(|_| len <= MAX_DATA)
}

/// Where `len` bytes from `sector` on are on a disk of so many sectors, if they are whole sectors and all there.
fn place(sectors: u64, sector: u64, len: u64) -> Option<u64> {
    let ends = sector.checked_add(len / SECTOR)?;
    let fits = len.is_multiple_of(SECTOR) && ends <= sectors;
    // A disk may say that it has more sectors than there are numbers for bytes.
    if fits && ends.checked_mul(SECTOR).is_some() { Some(sector * SECTOR) } else { None }
}

/// Writes what a disk is known by; how that has ended, and how many bytes were written.
pub(super) fn identify(
    chain: &Chain,
    id: &[u8; ID_BYTES],
    memory: &impl GuestMemory,
) -> (Status, u64) {
    let count = (chain.writable() - 1).min(ID_BYTES as u64) as usize;
    let written = chain.write(0, &id[..count], memory);
    (if written.is_ok() { Status::Ok } else { Status::Error }, count as u64)
}

/// Writes how a request has ended, which has written so many bytes; how many those are with that.
pub(super) fn end(
    chain: &Chain,
    status: Status,
    written: u64,
    memory: &impl GuestMemory,
) -> Result<u32, Malformed> {
    chain.write(chain.writable() - 1, &[status as u8], memory)?;
    // At most what a request may have.
    Ok(written as u32 + 1)
}
