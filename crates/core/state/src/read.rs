//! How a state is opened, and its sections found.

use crate::Error;
use crate::layout::{
    ALIGN, CHECKSUM_AT, COUNT_AT, HEADER, Id, Kind, LENGTH_AT, MAGIC, MAX_BYTES, NAME, NUMBER_AT,
    SECTION_HEADER, SECTION_LENGTH_AT, SECTION_VERSION_AT, SECTION_ZERO_AT, SECTIONS_PART, VERSION,
    VERSION_AT, ZERO_AT, checksum,
};
use crate::section::SectionReader;

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

pub(crate) fn id(header: &[u8; SECTION_HEADER]) -> Id {
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
        Ok(SectionReader::new(header, section.contents))
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
