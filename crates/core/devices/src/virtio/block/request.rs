//! What a driver asks of a disk, and how the disk answers.

use super::{HEADER, ID_BYTES, MAX_DATA, SECTOR, Status};
use crate::memory::GuestMemory;
use crate::virtio::chain::{Chain, Malformed};

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Read from this byte of the disk on all that is writable but the status.
    Read(u64),
    /// Write to this byte of the disk on all that is readable but the header.
    Write(u64),
    Flush,
    Id,
    /// Nothing but this answer.
    Wrong(Status),
}

impl Order {
    /// The order of a chain to a disk of so many sectors. It is read once.
    pub(super) fn parse(
        chain: &Chain,
        sectors: u64,
        is_read_only: bool,
        memory: &impl GuestMemory,
    ) -> Result<Self, Malformed> {
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
            READ => place(sectors, sector, chain.writable() - 1).map_or(wrong, Self::Read),
            WRITE if is_read_only => wrong,
            WRITE => place(sectors, sector, chain.readable() - HEADER).map_or(wrong, Self::Write),
            FLUSH => Self::Flush,
            GET_ID => Self::Id,
            _ => Self::Wrong(Status::Unsupported),
        })
    }
}

/// Where `len` bytes from `sector` on are on a disk of so many sectors, if they are whole sectors, all there, and no more
/// than a request may have.
fn place(sectors: u64, sector: u64, len: u64) -> Option<u64> {
    let ends = sector.checked_add(len / SECTOR)?;
    let fits = len.is_multiple_of(SECTOR) && len <= MAX_DATA && ends <= sectors;
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
