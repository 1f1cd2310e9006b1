//! A disk: virtio 1.2, 5.2.
//!
//! There are two. A [`Block`] carries out a request while it is served. A [`Remote`] hands its requests to its embedder,
//! which answers them later, in any order.

mod remote;
mod request;

pub use remote::{Clearing, Remote, Request, Taken, Work};

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::backend::{Backend, sealed};
use super::chain::{Chain, Malformed};
use crate::memory::GuestMemory;
use request::{Order, Shape};

const SECTOR: u64 = 512;

/// The most bytes of one segment of a request that a driver is told of.
pub const MAX_SEGMENT_BYTES: u32 = 0x1_0000;
const MAX_DATA_SEGMENTS: u32 = 126;
const MAX_DATA: u64 = MAX_SEGMENT_BYTES as u64 * MAX_DATA_SEGMENTS as u64;

mod feature {
    pub(super) const SIZE_MAX: u64 = 1 << 1;
    pub(super) const SEG_MAX: u64 = 1 << 2;
    pub(super) const READ_ONLY: u64 = 1 << 5;
    pub(super) const BLK_SIZE: u64 = 1 << 6;
    pub(super) const FLUSH: u64 = 1 << 9;
    pub(super) const DISCARD: u64 = 1 << 13;
    pub(super) const WRITE_ZEROES: u64 = 1 << 14;
}

/// The last byte that a request's driver gets.
#[derive(Clone, Copy, Debug)]
enum Status {
    Ok = 0,
    Error = 1,
    Unsupported = 2,
}

const HEADER: u64 = 16;
const BUFFER: usize = 4096;
const ID_BYTES: usize = 20;

/// What a disk could not do. The guest sees an I/O error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk could not carry out the request")]
pub struct DiskError;

/// What a disk keeps its bytes in.
pub trait Disk {
    /// How many sectors of 512 bytes it has. Does not change.
    fn sectors(&self) -> u64;

    /// Whether it is never written. Does not change.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Reads from `offset`, in bytes, which is within the disk, with all that is read.
    ///
    /// # Errors
    ///
    /// [`DiskError`].
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;

    /// Writes to `offset`, in bytes, which is within the disk, with all that is written. Not called for one that is
    /// read-only.
    ///
    /// # Errors
    ///
    /// [`DiskError`].
    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), DiskError>;

    /// What was written is kept from now on. A disk that forgets nothing before the VM ends has nothing to do.
    ///
    /// # Errors
    ///
    /// [`DiskError`].
    fn flush(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
}

/// A block device over a disk.
#[derive(Debug)]
pub struct Block<D> {
    disk: D,
    id: [u8; ID_BYTES],
    buffer: [u8; BUFFER],
}

impl<D: Disk> Block<D> {
    /// A device over `disk`, which its guest knows by the first 20 bytes of `id`.
    pub fn new(disk: D, id: &str) -> Self {
        Self { disk, id: id_bytes(id), buffer: [0; BUFFER] }
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Gives the disk back, which outlives its device where a VM begins anew.
    pub fn into_disk(self) -> D {
        self.disk
    }

    fn read(&mut self, start: u64, chain: &Chain, memory: &impl GuestMemory) -> (Status, u64) {
        let len = chain.writable() - 1;
        let mut done = 0;
        while done < len {
            let now = (len - done).min(BUFFER as u64) as usize;
            let buffer = &mut self.buffer[..now];
            let read = self.disk.read(start + done, buffer);
            if read.is_err() || chain.write(done, buffer, memory).is_err() {
                return (Status::Error, done);
            }
            done += now as u64;
        }
        (Status::Ok, len)
    }

    fn flush(&mut self) -> Status {
        if self.disk.flush().is_ok() { Status::Ok } else { Status::Error }
    }

    fn write(&mut self, start: u64, chain: &Chain, memory: &impl GuestMemory) -> Status {
        let len = chain.readable() - HEADER;
        let mut done = 0;
        while done < len {
            let now = (len - done).min(BUFFER as u64) as usize;
            let buffer = &mut self.buffer[..now];
            let read = chain.read(HEADER + done, buffer, memory);
            if read.is_err() || self.disk.write(start + done, buffer).is_err() {
                return Status::Error;
            }
            done += now as u64;
        }
        Status::Ok
    }
}

impl<D> sealed::Device for Block<D> {}

/// Writes what a disk is, which its guest knows by `id`.
fn save(sectors: u64, is_read_only: bool, id: &[u8; ID_BYTES], to: &mut SectionWriter<'_, '_>) {
    to.u64(sectors);
    to.flag(is_read_only);
    to.bytes(id);
}

/// Reads what [`save`] has written of a disk like this one. Returns its name.
fn saved(
    sectors: u64,
    is_read_only: bool,
    from: &mut SectionReader<'_>,
) -> Result<[u8; ID_BYTES], Error> {
    from.expect("sectors", sectors)?;
    from.expect_flag("read-only", is_read_only)?;
    from.bytes("name")
}

impl<D: Disk> Backend for Block<D> {
    const ID: u32 = 2;

    fn features(&self) -> u64 {
        features(self.disk.is_read_only(), Clearing::default())
    }

    fn config(&self, offset: u64) -> u8 {
        config(self.disk.sectors(), Clearing::default(), offset)
    }

    /// The name that the guest knows the disk by.
    type Saved = [u8; ID_BYTES];

    fn state(&self) -> Self::Saved {
        self.id
    }

    fn save(&self, to: &mut SectionWriter<'_, '_>) {
        save(self.disk.sectors(), self.disk.is_read_only(), &self.id, to);
    }

    fn saved(&self, from: &mut SectionReader<'_>) -> Result<Self::Saved, Error> {
        saved(self.disk.sectors(), self.disk.is_read_only(), from)
    }

    fn adopt(&mut self, id: Self::Saved) {
        self.id = id;
    }

    fn serve(
        &mut self,
        chain: &Chain,
        features: u64,
        memory: &impl GuestMemory,
    ) -> Result<u32, Malformed> {
        let shape = Shape {
            sectors: self.disk.sectors(),
            is_read_only: self.disk.is_read_only(),
            clearing: Clearing::default(),
        };
        let order = Order::parse(chain, shape, memory)?;
        let (status, written) = match order {
            Order::Read(start) => self.read(start, chain, memory),
            Order::Write(start) => match self.write(start, chain, memory) {
                Status::Ok if is_through(features) => (self.flush(), 0),
                status => (status, 0),
            },
            Order::Flush => (self.flush(), 0),
            Order::Id => request::identify(chain, &self.id, memory),
            // Not of a disk that offers neither.
            Order::Discard(..) | Order::Zero(..) => (Status::Unsupported, 0),
            Order::Wrong(status) => (status, 0),
        };
        request::end(chain, status, written, memory)
    }
}

fn id_bytes(id: &str) -> [u8; ID_BYTES] {
    let mut bytes = [0; ID_BYTES];
    for (to, from) in bytes.iter_mut().zip(id.bytes()) {
        *to = from;
    }
    bytes
}

fn features(is_read_only: bool, clearing: Clearing) -> u64 {
    let mut features = feature::SIZE_MAX | feature::SEG_MAX | feature::BLK_SIZE | feature::FLUSH;
    for (bit, is_offered) in [
        (feature::READ_ONLY, is_read_only),
        (feature::DISCARD, clearing.discards > 0),
        (feature::WRITE_ZEROES, clearing.zeroes > 0),
    ] {
        features |= if is_offered { bit } else { 0 };
    }
    features
}

/// Whether what is written is to be kept as soon as the write is answered: it is, where the driver has not taken the feature
/// by which it flushes (virtio 1.2, 5.2.6.2).
const fn is_through(features: u64) -> bool {
    features & feature::FLUSH == 0
}

/// The byte at `offset` into the configuration of a disk of so many sectors.
fn config(sectors: u64, clearing: Clearing, offset: u64) -> u8 {
    let Clearing { discards, zeroes, unmaps } = clearing;
    // A request has one range, if any. The ranges may begin at any sector.
    let number = match offset {
        0..8 => sectors,
        8..16 => u64::from(MAX_SEGMENT_BYTES) | u64::from(MAX_DATA_SEGMENTS) << 32,
        // The geometry that no disk has is in the first half.
        16..24 => SECTOR << 32,
        // What nothing is said of is in the first half.
        32..40 => u64::from(discards) << 32,
        40..48 if discards > 0 => 1 | 1 << 32,
        48..56 if zeroes > 0 => u64::from(zeroes) | 1 << 32,
        56..64 if zeroes > 0 => unmaps.into(),
        _ => 0,
    };
    number.to_le_bytes()[(offset % 8) as usize]
}
