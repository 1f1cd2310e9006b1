//! A disk: virtio 1.2, 5.2. Several requests are under way at a time, and end in any order.

use alloc::vec::Vec;

use virtio_drivers::transport::Transport;
use virtio_drivers::{BufferDirection, Hal};

use crate::Broken;
use crate::buffer::Buffer;
use crate::partitions::SECTOR;
use crate::ring::{Parts, Ring};
use crate::rooms::Rooms;
use crate::start::{Started, Unusable, begin, word};

/// The most requests that are under way.
pub const SLOTS: usize = 16;
/// The most bytes that a request reads or writes.
pub const PIECE_BYTES: usize = 32 << 10;

/// Descriptors: a request has three at most.
const SIZE: usize = 64;

mod feature {
    pub(super) const SIZE_MAX: u64 = 1 << 1;
    pub(super) const READ_ONLY: u64 = 1 << 5;
    pub(super) const BLK_SIZE: u64 = 1 << 6;
    pub(super) const FLUSH: u64 = 1 << 9;
    pub(super) const CONFIG_WCE: u64 = 1 << 11;
    pub(super) const DISCARD: u64 = 1 << 13;
    pub(super) const WRITE_ZEROES: u64 = 1 << 14;
}

mod config {
    pub(super) const CAPACITY: usize = 0;
    pub(super) const SIZE_MAX: usize = 8;
    pub(super) const BLK_SIZE: usize = 20;
    /// The most sectors of a range, and, behind that, the most ranges of a request.
    pub(super) const DISCARD: usize = 36;
    pub(super) const WRITE_ZEROES: usize = 48;
    pub(super) const UNMAPS: usize = 56;
    pub(super) const GENERATION_TRIES: usize = 8;
}

/// What a request says of itself; then the byte in which the device says how it has ended; and the range that is cleared.
const HEADER: usize = 16;
const RANGE: core::ops::Range<usize> = 32..48;
const CONTROL: usize = 64;
/// A flag of a range.
const UNMAP: u32 = 1;
/// No device says this.
const NOT_YET: u8 = 0xff;

/// What a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// Its sectors, of 512 bytes.
    pub sectors: u64,
    /// It cannot be written.
    pub read_only: bool,
    /// It may keep what was written in a cache until it is flushed. Another one has written when it says so: a driver may
    /// take that from a disk that has no flushes (virtio 1.2, 5.2.6.1).
    pub has_cache: bool,
    /// The most bytes of a request: whole sectors, at most [`PIECE_BYTES`].
    pub most: usize,
    /// The most bytes of a request that discards; 0 if the disk knows none.
    pub most_discarded: u64,
    /// The most bytes of a request that has them be zero; 0 if the disk knows none.
    pub most_zeroed: u64,
    /// The disk may give up what is to be zero.
    pub unmaps: bool,
}

/// What a disk is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read so many bytes, of whole sectors, from a sector on.
    Read(u64, usize),
    /// Write them.
    Write(u64, usize),
    /// Keep what was written, when the power goes.
    Flush,
    /// Give up so many bytes, of whole sectors, from a sector on: what is read there from then on is anything.
    Discard(u64, u64),
    /// Have so many bytes, of whole sectors, from a sector on be zero; and give them up, too, if that is `true` and the
    /// [disk may](DiskInfo::unmaps).
    Zero(u64, u64, bool),
}

impl Operation {
    /// The range that it clears: its first sector, its bytes, and its flags.
    fn cleared(self, unmaps: bool) -> Option<(u64, u64, u32)> {
        match self {
            Self::Discard(sector, len) => Some((sector, len, 0)),
            Self::Zero(sector, len, gives_up) => {
                Some((sector, len, if gives_up && unmaps { UNMAP } else { 0 }))
            }
            _ => None,
        }
    }
}

/// The disk has not carried a request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk has not carried out the request")]
pub struct Failed;

/// Room for a request, which a `P` waits for.
#[derive(Debug)]
pub struct Slot<P> {
    control: Buffer,
    data: Buffer,
    operation: Operation,
    written: u32,
    party: u64,
    /// Who waits for it.
    pub waiter: P,
}

impl<P> Slot<P> {
    /// What is written, or was read: `len` bytes at most.
    pub fn data(&mut self, len: usize) -> &mut [u8] {
        &mut self.data.bytes_mut()[..len.min(PIECE_BYTES)]
    }

    /// What was read.
    ///
    /// # Errors
    ///
    /// [`Failed`]. Then nothing is known of what is in the buffer: it may be another's.
    pub fn result(&self) -> Result<&[u8], Failed> {
        let len = match self.operation {
            Operation::Read(_, len) => len,
            _ => 0,
        };
        // A device that says that it has written less has not read all.
        let is_done = self.control.bytes()[HEADER] == 0 && self.written as usize > len;
        if is_done { Ok(&self.data.bytes()[..len]) } else { Err(Failed) }
    }

    fn fail(&mut self) {
        self.control.bytes_mut()[HEADER] = NOT_YET;
    }
}

// SAFETY: parts of buffers that it owns, by an operation that does not change while the device has it. None is empty:
// `Disk::start` refuses a length of 0.
unsafe impl<P> Parts for Slot<P> {
    fn with<R>(
        &mut self,
        then: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R,
    ) -> R {
        let (header, rest) = self.control.bytes_mut().split_at_mut(HEADER);
        let (status, range) = rest.split_at_mut(RANGE.start - HEADER);
        let (status, range) = (&mut status[..1], &range[..RANGE.len()]);
        match self.operation {
            Operation::Read(_, len) => {
                then(&[header], &mut [&mut self.data.bytes_mut()[..len], status])
            }
            Operation::Write(_, len) => then(&[header, &self.data.bytes()[..len]], &mut [status]),
            Operation::Flush => then(&[header], &mut [status]),
            Operation::Discard(..) | Operation::Zero(..) => then(&[header, range], &mut [status]),
        }
    }
}

/// A disk.
pub struct Disk<H: Hal, T: Transport, P> {
    device: Started<T>,
    ring: Ring<H, Slot<P>, SIZE>,
    free: Vec<(Buffer, Buffer)>,
    rooms: Rooms,
    info: DiskInfo,
}

impl<H: Hal, T: Transport, P> Disk<H, T, P> {
    /// Starts the disk. It interrupts when a request has ended.
    ///
    /// # Errors
    ///
    /// [`Unusable`].
    pub fn new(transport: T) -> Result<Self, Unusable> {
        let (device, (ring, free, rooms, info)) = Started::new(transport, Self::prepare)?;
        Ok(Self { device, ring, free, rooms, info })
    }

    #[expect(clippy::type_complexity, reason = "its one caller takes it apart")]
    fn prepare(
        transport: &mut T,
    ) -> Result<(Ring<H, Slot<P>, SIZE>, Vec<(Buffer, Buffer)>, Rooms, DiskInfo), Unusable> {
        let known = feature::SIZE_MAX
            | feature::READ_ONLY
            | feature::BLK_SIZE
            | feature::FLUSH
            | feature::DISCARD
            | feature::WRITE_ZEROES;
        let features = begin(transport, known)?;
        if features & (feature::FLUSH | feature::CONFIG_WCE) == feature::CONFIG_WCE {
            return Err(Unusable::Cache);
        }
        if features & feature::BLK_SIZE != 0 {
            match word(transport, config::BLK_SIZE)? {
                512 => {}
                other => return Err(Unusable::BlockSize(other)),
            }
        }
        let most = if features & feature::SIZE_MAX == 0 {
            PIECE_BYTES
        } else {
            let most = word(transport, config::SIZE_MAX)?;
            let whole = (most as usize).min(PIECE_BYTES) / SECTOR * SECTOR;
            if whole == 0 { Err(Unusable::SegmentSize(most)) } else { Ok(whole) }?
        };
        let cleared = |feature: u64, offset: usize| {
            if features & feature == 0 {
                return Ok(0);
            }
            let (sectors, ranges) = (word(transport, offset)?, word(transport, offset + 4)?);
            // One range is all that a request has.
            Ok(if ranges == 0 { 0 } else { u64::from(sectors) * SECTOR as u64 })
        };
        let most_discarded = cleared(feature::DISCARD, config::DISCARD)?;
        let most_zeroed = cleared(feature::WRITE_ZEROES, config::WRITE_ZEROES)?;
        let unmaps = most_zeroed > 0
            && transport
                .read_config_space::<u8>(config::UNMAPS)
                .map_err(|_| Unusable::Configuration)?
                != 0;
        let info = DiskInfo {
            sectors: capacity(transport)?,
            read_only: features & feature::READ_ONLY != 0,
            has_cache: features & feature::FLUSH != 0,
            most,
            most_discarded,
            most_zeroed,
            unmaps,
        };
        let ring = Ring::new(transport, 0)?;
        let (mut controls, mut data, mut free) = (Vec::new(), Vec::new(), Vec::new());
        Buffer::allocate::<H>(&mut controls, SLOTS, CONTROL, BufferDirection::Both)?;
        Buffer::allocate::<H>(&mut data, SLOTS, PIECE_BYTES, BufferDirection::Both)?;
        free.try_reserve_exact(SLOTS).map_err(|_| Unusable::NoMemory)?;
        free.extend(controls.into_iter().zip(data));
        Ok((ring, free, Rooms::try_new(SLOTS)?, info))
    }

    /// What it is.
    pub const fn info(&self) -> DiskInfo {
        self.info
    }

    /// Room for a request of one of several parties; the waiter, where the party has as much as [its part](Rooms).
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on.
    pub fn room(&mut self, party: u64, waiter: P) -> Result<Result<Slot<P>, P>, Broken> {
        self.device.check()?;
        if !self.rooms.take(party) {
            return Ok(Err(waiter));
        }
        let Some((control, data)) = self.free.pop() else { return Ok(Err(waiter)) };
        let operation = Operation::Flush;
        Ok(Ok(Slot { control, data, operation, written: 0, party, waiter }))
    }

    /// Starts a request, whose sectors are the disk's. What it writes is in its [data](Slot::data).
    ///
    /// # Errors
    ///
    /// The slot, whose request has failed: its sectors are not the disk's, it is no whole number of them, or more than
    /// [`DiskInfo::most`], or than what may be cleared at a time, or the disk is broken, or cannot be written.
    pub fn start(&mut self, mut slot: Slot<P>, operation: Operation) -> Result<(), Slot<P>> {
        slot.fail();
        let DiskInfo { most, most_discarded, most_zeroed, .. } = self.info;
        let fits = |sector: u64, len: u64, most: u64| {
            let count = len / SECTOR as u64;
            let ends = sector.checked_add(count).is_some_and(|end| end <= self.info.sectors);
            ends && len > 0 && len.is_multiple_of(SECTOR as u64) && len <= most
        };
        let is_written = !self.info.read_only;
        let (kind, sector, may) = match operation {
            Operation::Read(sector, len) => (0_u32, sector, fits(sector, len as u64, most as u64)),
            Operation::Write(sector, len) => {
                (1, sector, is_written && fits(sector, len as u64, most as u64))
            }
            Operation::Flush => (4, 0, self.info.has_cache),
            Operation::Discard(sector, len) => {
                (11, 0, is_written && fits(sector, len, most_discarded))
            }
            Operation::Zero(sector, len, _) => {
                (13, 0, is_written && fits(sector, len, most_zeroed))
            }
        };
        if !may || self.device.broken().is_some() {
            return Err(slot);
        }
        slot.operation = operation;
        let header = slot.control.bytes_mut();
        header[..HEADER].fill(0);
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..HEADER].copy_from_slice(&sector.to_le_bytes());
        if let Some((sector, len, flags)) = operation.cleared(self.info.unmaps) {
            let range = &mut header[RANGE];
            range[..8].copy_from_slice(&sector.to_le_bytes());
            range[8..12].copy_from_slice(&((len / SECTOR as u64) as u32).to_le_bytes());
            range[12..].copy_from_slice(&flags.to_le_bytes());
        }
        self.ring.add(slot)?;
        self.ring.notify(&mut self.device.transport);
        Ok(())
    }

    /// The next request that has ended. What a broken device had has ended, too.
    pub fn ended(&mut self) -> Option<Slot<P>> {
        if self.device.broken().is_none() {
            match self.ring.take() {
                Ok(None) => return None,
                Ok(Some((mut slot, written))) => {
                    slot.written = written;
                    return Some(slot);
                }
                Err(broken) => self.device.give_up(broken),
            }
        }
        let mut slot = self.ring.drain().next()?;
        slot.fail();
        Some(slot)
    }

    /// Looks whether the disk asks for its reset: it may, where it has told of a change of its configuration. If its
    /// interrupt was turned off, it is not heard. In either case it is [broken](Disk::broken) then.
    pub fn look(&mut self, is_heard: bool) {
        // The requests that it has say so as they end.
        let _ = self.device.look(is_heard);
    }

    /// Why it is not used any more, if it is not.
    pub const fn broken(&self) -> Option<Broken> {
        self.device.broken()
    }

    /// Takes room back; who has waited for it.
    pub fn give_back(&mut self, slot: Slot<P>) -> P {
        let Slot { control, data, party, waiter, .. } = slot;
        self.rooms.give_back(party);
        self.free.push((control, data));
        waiter
    }
}

/// A disk may grow while it is asked.
fn capacity(transport: &impl Transport) -> Result<u64, Unusable> {
    for _ in 0..config::GENERATION_TRIES {
        let before = transport.read_config_generation();
        let low = word(transport, config::CAPACITY)?;
        let high = word(transport, config::CAPACITY + 4)?;
        if transport.read_config_generation() == before {
            return Ok(u64::from(high) << 32 | u64::from(low));
        }
    }
    Err(Unusable::Configuration)
}
