//! A chain of descriptors: what a driver gives to its device at a time. The device reads all of it once, and checks it,
//! before it does anything with it.

use arrayvec::ArrayVec;

use crate::memory::{BadAddress, GuestMemory};

/// The most descriptors of a chain, besides one that points to others. A device tells its driver of fewer.
pub(crate) const MAX_SEGMENTS: usize = 130;

/// A descriptor's bytes, and those of a table of descriptors for each.
const DESCRIPTOR: u64 = 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// What a driver must not do, and did: the device asks to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<BadAddress> for Malformed {
    fn from(_: BadAddress) -> Self {
        Self
    }
}

/// A table of descriptors in the guest's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) address: u64,
    pub(crate) len: u32,
}

struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Table {
    fn get(self, index: u16, memory: &impl GuestMemory) -> Result<Descriptor, Malformed> {
        if u32::from(index) >= self.len {
            return Err(Malformed);
        }
        let mut bytes = [0; DESCRIPTOR as usize];
        let address = self.address.checked_add(u64::from(index) * DESCRIPTOR).ok_or(Malformed)?;
        memory.read(address, &mut bytes)?;
        let number = |from: usize, to: usize| {
            bytes[from..to].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        Ok(Descriptor {
            address: number(0, 8),
            len: number(8, 12) as u32,
            flags: number(12, 14) as u16,
            next: number(14, 16) as u16,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    len: u32,
}

/// Bytes that the device reads, then bytes that it writes, in pieces anywhere in the guest's memory. It has 2 KiB, of which
/// nothing is written before it is needed: whoever serves a queue has one on its stack, and a card one for what it receives.
#[derive(Debug)]
pub(crate) struct Chain {
    segments: ArrayVec<Segment, MAX_SEGMENTS>,
    readable: usize,
}

impl Chain {
    pub(crate) const fn new() -> Self {
        Self { segments: ArrayVec::new_const(), readable: 0 }
    }

    /// Reads the chain that begins at descriptor `head` of `table`. One that ends in a circle has more descriptors than a
    /// chain may have. Where `indirect` tables were agreed on, the last descriptor may point to one, in which the chain
    /// goes on (virtio 1.2, 2.7.5.3.2).
    pub(crate) fn collect(
        &mut self,
        mut table: Table,
        head: u16,
        mut indirect: bool,
        memory: &impl GuestMemory,
    ) -> Result<(), Malformed> {
        self.segments.clear();
        self.readable = 0;
        let mut descriptor = table.get(head, memory)?;
        loop {
            if descriptor.flags & INDIRECT != 0 {
                let whole =
                    descriptor.len > 0 && u64::from(descriptor.len).is_multiple_of(DESCRIPTOR);
                if !indirect || descriptor.flags & NEXT != 0 || !whole {
                    return Err(Malformed);
                }
                // In such a table is no other.
                indirect = false;
                table =
                    Table { address: descriptor.address, len: descriptor.len / DESCRIPTOR as u32 };
                descriptor = table.get(0, memory)?;
                continue;
            }
            self.push(&descriptor)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            descriptor = table.get(descriptor.next, memory)?;
        }
    }

    fn push(&mut self, descriptor: &Descriptor) -> Result<(), Malformed> {
        let Descriptor { address, len, flags, .. } = *descriptor;
        let ends = address.checked_add(u64::from(len)).is_some();
        let in_order = flags & WRITE != 0 || self.readable == self.segments.len();
        if len == 0 || !ends || !in_order {
            return Err(Malformed);
        }
        self.segments.try_push(Segment { address, len }).map_err(|_| Malformed)?;
        if flags & WRITE == 0 {
            self.readable = self.segments.len();
        }
        Ok(())
    }

    /// How many bytes the device reads.
    pub(crate) fn readable(&self) -> u64 {
        total(&self.segments[..self.readable])
    }

    /// How many bytes the device writes.
    pub(crate) fn writable(&self) -> u64 {
        total(&self.segments[self.readable..])
    }

    /// The pieces that the device writes, by their addresses and bytes.
    pub(crate) fn written(&self) -> impl Iterator<Item = (u64, u64)> {
        let pieces = &self.segments[self.readable..];
        pieces.iter().map(|piece| (piece.address, piece.len.into()))
    }

    /// The address of the byte at `offset` of what the device writes.
    pub(crate) fn address(&self, offset: u64) -> Result<u64, BadAddress> {
        let mut at = 0;
        self.each_written(offset, 1, |address, _, _| {
            at = address;
            Ok::<_, BadAddress>(())
        })?;
        Ok(at)
    }

    /// Calls `copy` for each piece of the `len` bytes from `offset` on of what the device reads: with its address, and which
    /// of those bytes it is.
    pub(crate) fn each_read<E: From<BadAddress>>(
        &self,
        offset: u64,
        len: usize,
        copy: impl FnMut(u64, usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        pieces(&self.segments[..self.readable], offset, len, copy)
    }

    /// The same of what the device writes.
    pub(crate) fn each_written<E: From<BadAddress>>(
        &self,
        offset: u64,
        len: usize,
        copy: impl FnMut(u64, usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        pieces(&self.segments[self.readable..], offset, len, copy)
    }

    /// Reads from `offset` into what the device reads.
    pub(crate) fn read(
        &self,
        offset: u64,
        into: &mut [u8],
        memory: &impl GuestMemory,
    ) -> Result<(), BadAddress> {
        self.each_read(offset, into.len(), |address, from, to| {
            memory.read(address, &mut into[from..to])
        })
    }

    /// Writes from `offset` on of what the device writes.
    pub(crate) fn write(
        &self,
        offset: u64,
        from: &[u8],
        memory: &impl GuestMemory,
    ) -> Result<(), BadAddress> {
        self.each_written(offset, from.len(), |address, start, end| {
            memory.write(address, &from[start..end])
        })
    }
}

fn total(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.len)).sum()
}

/// Calls `copy` for each piece of the `len` bytes from `offset` on: with its address, and which of those bytes it is.
fn pieces<E: From<BadAddress>>(
    segments: &[Segment],
    offset: u64,
    len: usize,
    mut copy: impl FnMut(u64, usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    let (mut skip, mut done) = (offset, 0);
    for segment in segments {
        let there = u64::from(segment.len);
        if skip >= there {
            skip -= there;
            continue;
        }
        if done == len {
            break;
        }
        let now = usize::try_from(there - skip).unwrap_or(usize::MAX).min(len - done);
        copy(segment.address + skip, done, done + now)?;
        done += now;
        skip = 0;
    }
    if done == len { Ok(()) } else { Err(BadAddress { address: offset }.into()) }
}
