//! Where the parts of a state are: its header, and those of sections.

use core::fmt;

/// The version of the format: of the headers. What is in sections has versions of its own.
pub const VERSION: u32 = 1;

/// The most bytes of a state. One of 512 vCPUs has less than two million.
pub const MAX_BYTES: usize = 1 << 24;

/// What a state begins with.
pub(crate) const MAGIC: [u8; 8] = *b"mayflyvm";

/// The bytes of the header: magic, version, checksum, length, number of sections, zero.
pub(crate) const HEADER: usize = 32;
pub(crate) const VERSION_AT: usize = 8;
/// The checksum is over all bytes but its own.
pub(crate) const CHECKSUM_AT: usize = 12;
pub(crate) const LENGTH_AT: usize = 16;
pub(crate) const COUNT_AT: usize = 24;
pub(crate) const ZERO_AT: usize = 28;

/// The bytes of a section's header: name, number, version, length, zero.
pub(crate) const SECTION_HEADER: usize = 32;
pub(crate) const NUMBER_AT: usize = 16;
pub(crate) const SECTION_VERSION_AT: usize = 20;
pub(crate) const SECTION_LENGTH_AT: usize = 24;
pub(crate) const SECTION_ZERO_AT: usize = 28;

/// Sections begin at multiples of it.
pub(crate) const ALIGN: usize = 8;

/// The bytes of a name.
pub(crate) const NAME: usize = 16;

/// How many bytes are summed up, or sections looked at, before a caller's `pause` is called.
pub(crate) const BYTES_PART: usize = 4096;
pub(crate) const SECTIONS_PART: u32 = 64;

/// The checksum of a state: that of all its bytes but the checksum's.
pub(crate) fn checksum(bytes: &[u8], pause: &mut dyn FnMut()) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CHECKSUM_AT]);
    for part in bytes[CHECKSUM_AT + 4..].chunks(BYTES_PART) {
        hasher.update(part);
        pause();
    }
    hasher.finalize()
}

/// What a section is of, and the version of what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub(crate) name: [u8; NAME],
    pub(crate) version: u32,
}

impl Kind {
    /// A kind of sections, by a name of 1 to 16 lowercase letters, digits and dashes.
    ///
    /// # Panics
    ///
    /// For another name, as it is compiled where the kind is a constant.
    pub const fn new(name: &str, version: u32) -> Self {
        let from = name.as_bytes();
        assert!(!from.is_empty() && from.len() <= NAME, "a name has 1 to 16 letters");
        let mut bytes = [0; NAME];
        let mut at = 0;
        while at < from.len() {
            assert!(is_letter(from[at]), "a name has lowercase letters, digits and dashes");
            bytes[at] = from[at];
            at += 1;
        }
        Self { name: bytes, version }
    }
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// A section, by its name and its number among those of that name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Id {
    pub(crate) name: [u8; NAME],
    pub(crate) number: u32,
}

impl Id {
    /// Section `number` of that kind.
    pub const fn new(kind: Kind, number: u32) -> Self {
        Self { name: kind.name, number }
    }

    /// Whether the name is one that a [`Kind`] could have.
    pub(crate) fn is_name(&self) -> bool {
        let len = self.name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        let (letters, rest) = self.name.split_at(len);
        len > 0 && letters.iter().all(|byte| is_letter(*byte)) && rest.iter().all(|byte| *byte == 0)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        write!(f, "`{}` {}", self.name[..end].escape_ascii(), self.number)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
