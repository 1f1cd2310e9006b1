//! The bytes of an instruction, one after the other.

use crate::Undecoded;

/// The most bytes of an instruction (AMD APM volume 3, 1.1; Intel SDM volume 2, 2.3.11).
pub(crate) const MOST: usize = 15;

#[derive(Debug)]
pub(crate) struct Bytes<'a> {
    bytes: &'a [u8],
    read: usize,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: &bytes[..bytes.len().min(MOST)], read: 0 }
    }

    /// How many were read.
    pub(crate) const fn read(&self) -> usize {
        self.read
    }

    pub(crate) fn next(&mut self) -> Result<u8, Undecoded> {
        let Some(byte) = self.bytes.get(self.read) else { return Err(self.at_end()) };
        self.read += 1;
        Ok(*byte)
    }

    /// Why there are no more.
    #[cold]
    const fn at_end(&self) -> Undecoded {
        if self.bytes.len() == MOST { Undecoded::TooLong } else { Undecoded::Truncated }
    }

    fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], Undecoded> {
        let rest = self.bytes.get(self.read..).and_then(|rest| rest.first_chunk());
        let Some(bytes) = rest else { return Err(self.at_end()) };
        self.read += COUNT;
        Ok(*bytes)
    }

    /// The next one, two, four or eight, in the order of their weights.
    pub(crate) fn unsigned(&mut self, count: u32) -> Result<u64, Undecoded> {
        Ok(match count {
            1 => self.next()?.into(),
            2 => u16::from_le_bytes(self.array()?).into(),
            4 => u32::from_le_bytes(self.array()?).into(),
            _ => u64::from_le_bytes(self.array()?),
        })
    }

    /// The same, as a signed number.
    pub(crate) fn signed(&mut self, count: u32) -> Result<i64, Undecoded> {
        let shift = 64 - 8 * count;
        Ok((self.unsigned(count)? << shift).cast_signed() >> shift)
    }
}
