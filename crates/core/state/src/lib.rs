//! The format in which the state of a stopped machine is saved: its devices, its interrupt controller, its vCPUs.
//!
//! A state is a header and *sections*, each with a name, a number among those of the same name, a version and a length.
//! What a section has in it, the crate says that has the state machine: this one knows no device. Numbers are
//! little-endian, and follow each other without gaps. A CRC-32 is over all of it, so that no flipped bit goes unnoticed
//! ([`State::open`]).
//!
//! ```
//! use mayfly_state::{Error, Kind, SectionReader, SectionWriter, State, Writer};
//!
//! const TIMER: Kind = Kind::new("timer", 1);
//!
//! struct Timer {
//!     is_on: bool,
//!     due: u64,
//! }
//!
//! impl Timer {
//!     fn save(&self, to: &mut SectionWriter<'_, '_>) {
//!         to.flag(self.is_on);
//!         to.u64(self.due);
//!     }
//!
//!     fn load(mut from: SectionReader<'_>) -> Result<Self, Error> {
//!         let timer = Self { is_on: from.flag("on")?, due: from.u64("due")? };
//!         from.end()?;
//!         Ok(timer)
//!     }
//! }
//!
//! // Nothing is allocated here: the caller brings the buffer.
//! let mut buffer = [0; 256];
//! let mut writer = Writer::new(&mut buffer);
//! writer.section(TIMER, 0, |to| Timer { is_on: true, due: 7 }.save(to));
//! let len = writer.finish()?;
//!
//! // Checked once, and read as often as there are forks.
//! let state = State::open(&buffer[..len])?;
//! for _ in 0..1000 {
//!     let mut sections = state.sections();
//!     assert_eq!(Timer::load(sections.take(TIMER, 0)?)?.due, 7);
//!     sections.end()?;
//! }
//!
//! buffer[40] ^= 1;
//! assert!(matches!(State::open(&buffer[..len]), Err(Error::Checksum { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What bytes are trusted with
//!
//! Nothing. A checksum is no signature: a state may have been made up, with a right checksum. Each `load` holds each
//! field against what its state machine could have come to, and refuses others with an error that names section and
//! field. A state has at most [`MAX_BYTES`]; nothing is allocated for what it says, and no length of it is believed
//! before it is compared with the bytes that there are.
//!
//! # Order and versions
//!
//! Sections are loaded in the order in which they were saved. A machine asks for those that it has ([`Sections::take`]),
//! and is told by name of one that it does not know, that is missing, or whose version it does not know. There are no
//! optional fields: a section whose fields change gets another version.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod error;
mod layout;
mod read;
mod section;
mod write;

pub use error::{Error, NoRoom};
pub use layout::{Id, Kind, MAX_BYTES, VERSION};
pub use read::{Sections, State};
pub use section::SectionReader;
pub use write::{SectionWriter, Writer};
