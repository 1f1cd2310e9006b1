//! How a state is read.

use zerocopy::IntoBytes;

use crate::Error;
use crate::layout::{
    ALIGN, CHECKSUM_AT, COUNT_AT, HEADER, Id, Kind, LENGTH_AT, MAGIC, MAX_BYTES, NAME, NUMBER_AT,
    SECTION_HEADER, SECTION_LENGTH_AT, SECTION_VERSION_AT, SECTION_ZERO_AT, SECTIONS_PART, VERSION,
    VERSION_AT, ZERO_AT, checksum,
};

/// A state that was checked as a whole: it is not damaged, and has the sections that it says it has. Shared by any
/// number of threads, each of which loads a machine from it.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// What follows the header.
    sections: &'a [u8],
    count: u32,
}

impl<'a> State<'a> {
    /// Checks the state that `bytes` are: all of them, and no others. The cost grows with their number; nothing that is
    /// loaded from it later is checked for damage again.
    ///
    /// # Errors
    ///
    /// [`Error`] says what they are not.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::open_with_pauses(bytes, &mut || {})
    }

    /// As [`State::open`]. `pause` is called after each 4 KiB and each 64 sections, for a caller that has interrupts masked,
    /// and looks for them now and then.
    ///
    /// # Errors
    ///
    /// As [`State::open`].
    pub fn open_with_pauses(bytes: &'a [u8], pause: &mut dyn FnMut()) -> Result<Self, Error> {
        let Some((header, sections)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(Error::Short(bytes.len()));
        };
        if bytes.len() > MAX_BYTES {
            return Err(Error::Long(bytes.len()));
        }
        if header[..VERSION_AT] != MAGIC {
            return Err(Error::Magic);
        }
        let version = word(header, VERSION_AT);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let said =
            u64::from(word(header, LENGTH_AT)) | u64::from(word(header, LENGTH_AT + 4)) << 32;
        if said != bytes.len() as u64 {
            return Err(Error::Length { said, given: bytes.len() });
        }
        let (said, computed) = (word(header, CHECKSUM_AT), checksum(bytes, pause));
        if said != computed {
            return Err(Error::Checksum { said, computed });
        }
        let reserved = word(header, ZERO_AT);
        if reserved != 0 {
            return Err(Error::Reserved(reserved));
        }
        let state = Self { sections, count: word(header, COUNT_AT) };
        state.check(pause)?;
        Ok(state)
    }

    /// The state that `bytes` are, which were [opened](State::open) before and have not changed: it is not checked for
    /// damage again. Bytes that were never opened may be damaged. They give what [`State::open`] could give for
    /// others, or sections that end early.
    ///
    /// # Errors
    ///
    /// [`Error::Short`], if they have no header.
    pub fn reopen(bytes: &'a [u8]) -> Result<Self, Error> {
        let Some((header, sections)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(Error::Short(bytes.len()));
        };
        Ok(Self { sections, count: word(header, COUNT_AT) })
    }

    /// Looks at the headers of all sections.
    fn check(&self, pause: &mut dyn FnMut()) -> Result<(), Error> {
        let mut rest = self.sections;
        for index in 0..self.count {
            let offset = HEADER + self.sections.len() - rest.len();
            let (_, others) = split(rest)
                .filter(|(section, _)| section.makes_sense())
                .ok_or(Error::Header { index, offset })?;
            rest = others;
            if index % SECTIONS_PART == SECTIONS_PART - 1 {
                pause();
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(Error::Stray(rest.len())) }
    }

    /// The sections, from the first on.
    pub const fn sections(&self) -> Sections<'a> {
        Sections { rest: self.sections }
    }
}

/// A section's header, and what is in it.
struct Section<'a> {
    header: &'a [u8; SECTION_HEADER],
    contents: &'a [u8],
    padding: &'a [u8],
}

/// The section that `bytes` begin with, and what follows it; `None` where there is none, or not all of it.
fn split(bytes: &[u8]) -> Option<(Section<'_>, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<SECTION_HEADER>()?;
    let len = usize::try_from(word(header, SECTION_LENGTH_AT)).ok()?;
    let (contents, rest) = rest.split_at_checked(len)?;
    let (padding, rest) = rest.split_at_checked(len.checked_next_multiple_of(ALIGN)? - len)?;
    Some((Section { header, contents, padding }, rest))
}

impl Section<'_> {
    /// Whether a writer writes such a one.
    fn makes_sense(&self) -> bool {
        let is_zero = self.padding.iter().all(|byte| *byte == 0);
        is_zero && word(self.header, SECTION_ZERO_AT) == 0 && id(self.header).is_name()
    }
}

/// Copies as many bytes as `into` has. Out of line, where their number is not known: where unaligned loads are not allowed,
/// the compiler would copy a known number byte by byte, with four times as many instructions as `memcpy`.
#[inline(never)]
fn copy(bytes: &[u8], into: &mut [u64]) {
    into.as_mut_bytes().copy_from_slice(bytes);
    for word in into {
        *word = u64::from_le(*word);
    }
}

fn id(header: &[u8; SECTION_HEADER]) -> Id {
    let mut name = [0; NAME];
    name.copy_from_slice(&header[..NAME]);
    Id { name, number: word(header, NUMBER_AT) }
}

fn word<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// The sections of a state that are still to be loaded, in order.
#[derive(Clone, Debug)]
pub struct Sections<'a> {
    rest: &'a [u8],
}

impl<'a> Sections<'a> {
    /// Takes the next section, which is to be `number` of that kind.
    ///
    /// # Errors
    ///
    /// It is another ([`Error::Unexpected`]), there are no more ([`Error::Missing`]), or its version is not known
    /// ([`Error::SectionVersion`]). The same section is next then.
    pub fn take(&mut self, kind: Kind, number: u32) -> Result<SectionReader<'a>, Error> {
        // What there is makes sense: that was checked when the state was opened.
        let Some((section, rest)) = split(self.rest) else {
            return Err(Error::Missing(Id::new(kind, number)));
        };
        let header = section.header;
        // As numbers: where the compiler compares bytes, it does so one by one.
        let name = |bytes: [u8; NAME]| u128::from_le_bytes(bytes);
        if name(id(header).name) != name(kind.name) || word(header, NUMBER_AT) != number {
            return Err(Error::Unexpected { found: id(header), expected: Id::new(kind, number) });
        }
        let version = word(header, SECTION_VERSION_AT);
        if version != kind.version {
            return Err(Error::version(kind, number, version));
        }
        self.rest = rest;
        Ok(SectionReader {
            rest: section.contents,
            len: section.contents.len(),
            header,
            index: None,
        })
    }

    /// The section that is next, if there is one.
    pub fn next_id(&self) -> Option<Id> {
        split(self.rest).map(|(section, _)| id(section.header))
    }

    /// All sections are loaded.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] names the first that is left.
    pub fn end(self) -> Result<(), Error> {
        self.next_id().map_or(Ok(()), |left| Err(Error::Unknown(left)))
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
