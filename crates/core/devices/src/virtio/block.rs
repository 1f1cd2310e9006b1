//! A disk: virtio 1.2, 5.2.

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::backend::{Backend, sealed};
use super::chain::{Chain, Malformed};
use crate::memory::GuestMemory;

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
}

mod request {
    pub(super) const READ: u32 = 0;
    pub(super) const WRITE: u32 = 1;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const GET_ID: u32 = 8;
}

/// The last byte that a request's driver gets.
#[derive(Clone, Copy)]
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
        let mut bytes = [0; ID_BYTES];
        for (to, from) in bytes.iter_mut().zip(id.bytes()) {
            *to = from;
        }
        Self { disk, id: bytes, buffer: [0; BUFFER] }
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Gives the disk back, which outlives its device where a VM begins anew.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// Where `len` bytes from `sector` on are on the disk, if they are whole sectors, all there, and no more than a
    /// request may have.
    fn place(&self, sector: u64, len: u64) -> Option<u64> {
        let ends = sector.checked_add(len / SECTOR)?;
        let fits = len.is_multiple_of(SECTOR) && len <= MAX_DATA && ends <= self.disk.sectors();
        // A disk may say that it has more sectors than there are numbers for bytes.
        if fits && ends.checked_mul(SECTOR).is_some() { Some(sector * SECTOR) } else { None }
    }

    fn read(&mut self, sector: u64, chain: &Chain, memory: &impl GuestMemory) -> (Status, u64) {
        let len = chain.writable() - 1;
        let Some(start) = self.place(sector, len) else { return (Status::Error, 0) };
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

    fn write(&mut self, sector: u64, chain: &Chain, memory: &impl GuestMemory) -> Status {
        let len = chain.readable() - HEADER;
        let Some(start) = self.place(sector, len) else { return Status::Error };
        if self.disk.is_read_only() {
            return Status::Error;
        }
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

impl<D: Disk> Backend for Block<D> {
    const ID: u32 = 2;

    fn features(&self) -> u64 {
        let read_only = if self.disk.is_read_only() { feature::READ_ONLY } else { 0 };
        feature::SIZE_MAX | feature::SEG_MAX | feature::BLK_SIZE | feature::FLUSH | read_only
    }

    fn config(&self, offset: u64) -> u8 {
        let number = match offset {
            0..8 => self.disk.sectors().to_le_bytes(),
            8..16 => {
                (u64::from(MAX_SEGMENT_BYTES) | u64::from(MAX_DATA_SEGMENTS) << 32).to_le_bytes()
            }
            // The geometry that no disk has is in the first half.
            16..24 => (SECTOR << 32).to_le_bytes(),
            _ => [0; 8],
        };
        number[(offset % 8) as usize]
    }

    /// The name that the guest knows the disk by.
    type Saved = [u8; ID_BYTES];

    fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.u64(self.disk.sectors());
        to.flag(self.disk.is_read_only());
        to.bytes(&self.id);
    }

    fn saved(&self, from: &mut SectionReader<'_>) -> Result<Self::Saved, Error> {
        from.expect("sectors", self.disk.sectors())?;
        let is_read_only = from.flag("read-only")?;
        from.check("read-only", is_read_only.into(), is_read_only == self.disk.is_read_only())?;
        from.bytes("name")
    }

    fn adopt(&mut self, id: Self::Saved) {
        self.id = id;
    }

    fn serve(&mut self, chain: &Chain, memory: &impl GuestMemory) -> Result<u32, Malformed> {
        if chain.readable() < HEADER || chain.writable() == 0 {
            return Err(Malformed);
        }
        let mut header = [0; HEADER as usize];
        chain.read(0, &mut header, memory)?;
        let [kind, sector] = [0, 8].map(|at| {
            header[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
        });
        let (status, written) = match kind as u32 {
            request::READ => self.read(sector, chain, memory),
            request::WRITE => (self.write(sector, chain, memory), 0),
            request::FLUSH => {
                let flushed = self.disk.flush();
                (if flushed.is_ok() { Status::Ok } else { Status::Error }, 0)
            }
            request::GET_ID => {
                let count = (chain.writable() - 1).min(ID_BYTES as u64) as usize;
                let written = chain.write(0, &self.id[..count], memory);
                (if written.is_ok() { Status::Ok } else { Status::Error }, count as u64)
            }
            _ => (Status::Unsupported, 0),
        };
        chain.write(chain.writable() - 1, &[status as u8], memory)?;
        // At most what a request may have.
        Ok(written as u32 + 1)
    }
}
