//! How the fields of a section are read.

use zerocopy::IntoBytes;

use crate::Error;
use crate::layout::{ALIGN, SECTION_HEADER};
use crate::read::id;

/// Copies as many bytes as `into` has. Out of line, where their number is not known: where unaligned loads are not allowed,
/// the compiler would copy a known number byte by byte, with four times as many instructions as `memcpy`.
#[inline(never)]
fn copy(bytes: &[u8], into: &mut [u64]) {
    into.as_mut_bytes().copy_from_slice(bytes);
    for word in into {
        *word = u64::from_le(*word);
    }
}

/// Reads a section: its fields, one after the other, as they were written. A field is given its name, for errors.
#[derive(Debug)]
pub struct SectionReader<'a> {
    rest: &'a [u8],
    /// Of the whole section.
    len: usize,
    header: &'a [u8; SECTION_HEADER],
    index: Option<u32>,
}

impl<'a> SectionReader<'a> {
    /// Of a section with this header, and what is in it.
    pub(crate) const fn new(header: &'a [u8; SECTION_HEADER], contents: &'a [u8]) -> Self {
        Self { rest: contents, len: contents.len(), header, index: None }
    }
}

impl SectionReader<'_> {
    /// The fields that follow are of `index`, one of several: for errors.
    pub const fn of(&mut self, index: u32) {
        self.index = Some(index);
    }

    /// The fields that follow are of the whole section again.
    pub const fn of_all(&mut self) {
        self.index = None;
    }

    /// So many bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Cut`]: there are fewer. The same holds of all methods that read a field.
    #[inline]
    pub fn bytes<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Error> {
        match self.rest.split_first_chunk() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(*bytes)
            }
            None => Err(self.cut(field)),
        }
    }

    /// A number of 8 bits.
    ///
    /// # Errors
    ///
    /// See [`SectionReader::bytes`].
    #[inline]
    pub fn u8(&mut self, field: &'static str) -> Result<u8, Error> {
        self.bytes(field).map(u8::from_le_bytes)
    }

    /// A number of 16 bits.
    ///
    /// # Errors
    ///
    /// See [`SectionReader::bytes`].
    #[inline]
    pub fn u16(&mut self, field: &'static str) -> Result<u16, Error> {
        self.bytes(field).map(u16::from_le_bytes)
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    ///
    /// See [`SectionReader::bytes`].
    #[inline]
    pub fn u32(&mut self, field: &'static str) -> Result<u32, Error> {
        self.bytes(field).map(u32::from_le_bytes)
    }

    /// A number of 64 bits.
    ///
    /// # Errors
    ///
    /// See [`SectionReader::bytes`].
    #[inline]
    pub fn u64(&mut self, field: &'static str) -> Result<u64, Error> {
        self.bytes(field).map(u64::from_le_bytes)
    }

    /// What follows begins at a multiple of 8 bytes from the beginning of the section.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: bytes before it are not zero. See [`SectionReader::bytes`], too.
    pub fn align(&mut self) -> Result<(), Error> {
        let read = self.len - self.rest.len();
        for _ in read..read.next_multiple_of(ALIGN) {
            let byte = self.u8("padding")?;
            self.check("padding", byte.into(), byte == 0)?;
        }
        Ok(())
    }

    /// Numbers of 64 bits, as many as `into` takes: one look at how many bytes there are, for all of them. Cheap where they
    /// were [aligned](SectionReader::align), and the state is in memory at a multiple of 8 bytes.
    ///
    /// # Errors
    ///
    /// See [`SectionReader::bytes`].
    #[inline]
    pub fn words(&mut self, field: &'static str, into: &mut [u64]) -> Result<(), Error> {
        let Some((words, rest)) = self.rest.split_at_checked(size_of_val(into)) else {
            return Err(self.cut(field));
        };
        self.rest = rest;
        copy(words, into);
        Ok(())
    }

    /// A number of 128 bits.
    ///
    /// # Errors
    ///
    /// See [`SectionReader::bytes`].
    #[inline]
    pub fn u128(&mut self, field: &'static str) -> Result<u128, Error> {
        self.bytes(field).map(u128::from_le_bytes)
    }

    /// Whether something is so.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: it is neither 0 nor 1. See [`SectionReader::bytes`], too.
    #[inline]
    pub fn flag(&mut self, field: &'static str) -> Result<bool, Error> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.invalid(field, other.into())),
        }
    }

    /// A number of 32 bits with no others set than those of `allowed`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: others are. See [`SectionReader::bytes`], too.
    #[inline]
    pub fn bits(&mut self, field: &'static str, allowed: u32) -> Result<u32, Error> {
        let value = self.u32(field)?;
        self.check(field, value.into(), value & !allowed == 0)?;
        Ok(value)
    }

    /// A number of 64 bits with no others set than those of `allowed`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: others are. See [`SectionReader::bytes`], too.
    #[inline]
    pub fn bits64(&mut self, field: &'static str, allowed: u64) -> Result<u64, Error> {
        let value = self.u64(field)?;
        self.check(field, value, value & !allowed == 0)?;
        Ok(value)
    }

    /// A number of 32 bits that says how many of something follow, of which there are at most `most`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: it is greater. See [`SectionReader::bytes`], too.
    #[inline]
    pub fn count(&mut self, field: &'static str, most: usize) -> Result<usize, Error> {
        let value = self.u32(field)?;
        match usize::try_from(value) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(self.invalid(field, value.into())),
        }
    }

    /// Reads a number of 64 bits that is to be this machine's.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: it is another. See [`SectionReader::bytes`], too.
    #[inline]
    pub fn expect(&mut self, field: &'static str, this: u64) -> Result<(), Error> {
        let value = self.u64(field)?;
        self.check(field, value, value == this)
    }

    /// The same of a number of 32 bits.
    ///
    /// # Errors
    ///
    /// As [`SectionReader::expect`].
    #[inline]
    pub fn expect_u32(&mut self, field: &'static str, this: u32) -> Result<(), Error> {
        let value = self.u32(field)?;
        self.check(field, value.into(), value == this)
    }

    /// The same of a flag.
    ///
    /// # Errors
    ///
    /// As [`SectionReader::expect`], and those of [`SectionReader::flag`].
    #[inline]
    pub fn expect_flag(&mut self, field: &'static str, this: bool) -> Result<(), Error> {
        let value = self.flag(field)?;
        self.check(field, value.into(), value == this)
    }

    /// Refuses `value` of a field that was read unless it `is_valid`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    #[inline]
    pub fn check(&self, field: &'static str, value: u64, is_valid: bool) -> Result<(), Error> {
        if is_valid { Ok(()) } else { Err(self.invalid(field, value)) }
    }

    /// What is said of a field that has a value which it cannot have.
    #[cold]
    pub fn invalid(&self, field: &'static str, value: u64) -> Error {
        Error::Invalid { section: id(self.header), field, index: self.index, value }
    }

    #[cold]
    fn cut(&self, field: &'static str) -> Error {
        Error::Cut { section: id(self.header), field, index: self.index }
    }

    /// All fields are read.
    ///
    /// # Errors
    ///
    /// [`Error::Trailing`]: bytes are left.
    pub fn end(self) -> Result<(), Error> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(Error::Trailing { section: id(self.header), bytes }),
        }
    }
}
