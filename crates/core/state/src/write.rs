//! How a state is written: into a buffer of the caller's.

use crate::NoRoom;
use crate::layout::{
    ALIGN, CHECKSUM_AT, COUNT_AT, HEADER, Kind, LENGTH_AT, MAGIC, MAX_BYTES, NUMBER_AT,
    SECTION_HEADER, SECTION_LENGTH_AT, SECTION_VERSION_AT, VERSION, VERSION_AT, checksum,
};

/// Writes a state into a buffer. Where the buffer is too short, nothing more is written, and all is counted:
/// [`Writer::finish`] then says how many bytes it takes. So a caller that begins with an empty buffer learns what to
/// allocate.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
    count: u32,
}

impl<'a> Writer<'a> {
    /// Writes to `buffer`, from its beginning.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        let mut writer = Self { buffer, len: 0, count: 0 };
        writer.put(&[0; HEADER]);
        writer.set(0, &MAGIC);
        writer.set(VERSION_AT, &VERSION.to_le_bytes());
        writer
    }

    /// Writes section `number` of a kind: `fill` writes what is in it. Returns what `fill` does.
    pub fn section<T>(
        &mut self,
        kind: Kind,
        number: u32,
        fill: impl FnOnce(&mut SectionWriter<'_, 'a>) -> T,
    ) -> T {
        let header = self.len;
        self.put(&[0; SECTION_HEADER]);
        self.set(header, &kind.name);
        self.set(header + NUMBER_AT, &number.to_le_bytes());
        self.set(header + SECTION_VERSION_AT, &kind.version.to_le_bytes());
        let filled = fill(&mut SectionWriter { writer: self });
        // What has more than `MAX_BYTES` is refused in the end.
        let len = (self.len - header - SECTION_HEADER) as u32;
        self.set(header + SECTION_LENGTH_AT, &len.to_le_bytes());
        let padding = self.len.next_multiple_of(ALIGN) - self.len;
        self.put(&[0; ALIGN][..padding]);
        self.count = self.count.saturating_add(1);
        filled
    }

    /// The state is complete. Returns how many bytes of the buffer it has.
    ///
    /// # Errors
    ///
    /// [`NoRoom`]: it has more than the buffer, or more than [`MAX_BYTES`].
    pub fn finish(self) -> Result<usize, NoRoom> {
        self.finish_with_pauses(&mut || {})
    }

    /// As [`Writer::finish`]. `pause` is called after each 4 KiB that are summed up.
    ///
    /// # Errors
    ///
    /// As [`Writer::finish`].
    pub fn finish_with_pauses(mut self, pause: &mut dyn FnMut()) -> Result<usize, NoRoom> {
        let room = self.buffer.len().min(MAX_BYTES);
        if self.len > room {
            return Err(NoRoom { needed: self.len, room });
        }
        self.set(LENGTH_AT, &(self.len as u64).to_le_bytes());
        self.set(COUNT_AT, &self.count.to_le_bytes());
        let checksum = checksum(&self.buffer[..self.len], pause);
        self.set(CHECKSUM_AT, &checksum.to_le_bytes());
        Ok(self.len)
    }

    fn put(&mut self, bytes: &[u8]) {
        let at = self.len;
        self.len = at.saturating_add(bytes.len());
        self.set(at, bytes);
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.buffer.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()))
        {
            place.copy_from_slice(bytes);
        }
    }
}

/// Writes what is in a section: fields, one after the other, as the section's reader asks for them.
#[derive(Debug)]
pub struct SectionWriter<'w, 'a> {
    writer: &'w mut Writer<'a>,
}

impl SectionWriter<'_, '_> {
    /// A number of 8 bits.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// A number of 16 bits.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// A number of 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// A number of 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// What follows begins at a multiple of 8 bytes from the beginning of the section: zeroes up to there.
    pub fn align(&mut self) {
        // Sections themselves begin so.
        let padding = self.writer.len.next_multiple_of(ALIGN) - self.writer.len;
        self.bytes(&[0; ALIGN][..padding]);
    }

    /// Numbers of 64 bits: see [`SectionReader::words`](crate::SectionReader::words).
    pub fn words(&mut self, values: &[u64]) {
        for value in values {
            self.u64(*value);
        }
    }

    /// A number of 128 bits.
    pub fn u128(&mut self, value: u128) {
        self.bytes(&value.to_le_bytes());
    }

    /// Whether something is so: a byte that is 0 or 1.
    pub fn flag(&mut self, value: bool) {
        self.u8(value.into());
    }

    /// Bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.writer.put(bytes);
    }
}
