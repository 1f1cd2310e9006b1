//! Why a state is not loaded, or not saved.

use crate::layout::{HEADER, MAX_BYTES, VERSION};
use crate::{Id, Kind};

/// Why bytes are not the state of a machine, or not of this one. `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Fewer bytes than a header has.
    #[error("{0} bytes are no state: its header alone has {HEADER}")]
    Short(usize),
    /// More than [`MAX_BYTES`].
    #[error("a state of {0} bytes is too long: it has at most {MAX_BYTES}")]
    Long(usize),
    /// They do not begin as a state does.
    #[error("this is not the state of a machine")]
    Magic,
    /// The format has another version.
    #[error("the state is of version {0} of the format; version {VERSION} is known")]
    Version(u32),
    /// The header says another length than there is: the state was cut, or something follows it.
    #[error("the state is to have {said} bytes, and there are {given}")]
    Length {
        /// What the header says.
        said: u64,
        /// How many there are.
        given: usize,
    },
    /// A bit has changed since it was saved.
    #[error("the state is damaged: its checksum is {computed:#010x}, and was {said:#010x}")]
    Checksum {
        /// What the header says.
        said: u32,
        /// What it is.
        computed: u32,
    },
    /// The header of a section makes no sense.
    #[error("the header of section {index}, at byte {offset}, makes no sense")]
    Header {
        /// Which of all, from 0.
        index: u32,
        /// Where it begins.
        offset: usize,
    },
    /// What is reserved in the header of the state is not zero.
    #[error("the last word of the state's header is {0:#x}, and is to be 0")]
    Reserved(u32),
    /// Something follows the last section.
    #[error("the state has {0} bytes behind its last section")]
    Stray(usize),
    /// Another section than this machine has at this place: it has other devices, or does not know that one.
    #[error("the state has section {found} where this machine has {expected}")]
    Unexpected {
        /// What there is.
        found: Id,
        /// What was asked for.
        expected: Id,
    },
    /// The state ends before a section that this machine has.
    #[error("the state has no section {0}")]
    Missing(Id),
    /// A section is left that this machine has not, or does not know.
    #[error("the state has section {0}, which this machine has not")]
    Unknown(Id),
    /// The section is of a version that is not known.
    #[error("section {section} is of version {found}; version {known} is known")]
    SectionVersion {
        /// The section.
        section: Id,
        /// Its version.
        found: u32,
        /// The one that is known.
        known: u32,
    },
    /// The section ends before, or within, a field.
    #[error("section {section} ends before {field}{}", Of(*.index))]
    Cut {
        /// The section.
        section: Id,
        /// The field.
        field: &'static str,
        /// Of which of several: an interrupt, a queue.
        index: Option<u32>,
    },
    /// A field has a value that it cannot have, or that is not this machine's.
    #[error("section {section} has {value:#x} as {field}{}", Of(*.index))]
    Invalid {
        /// The section.
        section: Id,
        /// The field.
        field: &'static str,
        /// Of which of several: an interrupt, a queue.
        index: Option<u32>,
        /// Its value, or the low 64 bits of it.
        value: u64,
    },
    /// Bytes follow the last field of a section.
    #[error("section {section} has {bytes} bytes behind its last field")]
    Trailing {
        /// The section.
        section: Id,
        /// How many.
        bytes: usize,
    },
}

/// ` of 3`, where there are several.
struct Of(Option<u32>);

impl core::fmt::Display for Of {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.map_or(Ok(()), |index| write!(f, " of {index}"))
    }
}

impl Error {
    pub(crate) fn version(kind: Kind, number: u32, found: u32) -> Self {
        Self::SectionVersion { section: Id::new(kind, number), found, known: kind.version }
    }
}

/// The buffer is too short for the state. Nothing of it is one. `ENOSPC`, or with more than [`MAX_BYTES`] `E2BIG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state has {needed} bytes, and there is room for {room}")]
pub struct NoRoom {
    /// How many bytes it has.
    pub needed: usize,
    /// How many there is room for.
    pub room: usize,
}
