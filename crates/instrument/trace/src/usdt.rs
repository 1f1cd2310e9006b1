//! Probes that a program has by itself (USDT): a `nop` in its code, and a note that says where it is.
//!
//! The note, of type 3 by `stapsdt`, has three addresses, as the file was linked (the probe's, that of the section
//! `.stapsdt.base`, and that of a counter that says whether anybody listens, or 0), and three strings: the provider, the
//! probe's name, and its arguments. If the file was linked anew for other addresses (prelink), the section alone has moved,
//! and the difference is the probe's, too.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use object::elf::{FileHeader32, FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

/// A probe by its names, and the file that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The program, or a library of its.
    pub path: PathBuf,
    /// Who has put it there.
    pub provider: String,
    /// What it is called.
    pub name: String,
}

impl FromStr for Probe {
    type Err = String;

    /// `PATH:PROVIDER:NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.rsplitn(3, ':');
        let mut part = || parts.next().filter(|part| !part.is_empty());
        match (part(), part(), part()) {
            (Some(name), Some(provider), Some(path)) => {
                Ok(Self { path: path.into(), provider: provider.into(), name: name.into() })
            }
            _ => Err("a probe is usdt:PATH:PROVIDER:NAME".to_owned()),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "usdt:{}:{}:{}", self.path.display(), self.provider, self.name)
    }
}

/// Where in its file a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) offset: u64,
    /// Where the counter is, if it has one.
    pub(crate) counter: Option<u64>,
}

/// The note's type, and who it is by.
const TYPE: u32 = 3;
const OWNER: &[u8] = b"stapsdt";

impl Probe {
    /// All places of this probe; a compiler may have made several of one.
    ///
    /// # Errors
    /// The file cannot be read, is no ELF file, or has no such probe.
    pub(crate) fn sites(&self) -> io::Result<Vec<Site>> {
        let file = File::open(&self.path)?;
        let data = ReadCache::new(file);
        let sites = self.sites_in(&data).map_err(invalid)?;
        if sites.is_empty() {
            return Err(invalid("it has no such probe"));
        }
        Ok(sites)
    }

    fn sites_in<'data, R: ReadRef<'data>>(&self, data: R) -> object::Result<Vec<Site>> {
        match FileKind::parse(data)? {
            FileKind::Elf32 => sites_of::<FileHeader32<Endianness>, R>(data, self),
            FileKind::Elf64 => sites_of::<FileHeader64<Endianness>, R>(data, self),
            _ => Ok(Vec::new()),
        }
    }
}

fn invalid(error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

fn sites_of<'data, E, R>(data: R, probe: &Probe) -> object::Result<Vec<Site>>
where
    E: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = E::parse(data)?;
    let endian = header.endian()?;
    let width = if header.is_type_64() { 8 } else { 4 };
    let sections = header.sections(endian, data)?;
    let base = sections.section_by_name(endian, b".stapsdt.base");
    let base: Option<u64> = base.map(|(_, section)| section.sh_addr(endian).into());
    let mut segments: Vec<(u64, u64, u64)> = Vec::new();
    for loaded in header.program_headers(endian, data)? {
        if loaded.p_type(endian) == PT_LOAD {
            let (at, offset) = (loaded.p_vaddr(endian).into(), loaded.p_offset(endian).into());
            segments.push((at, offset, loaded.p_filesz(endian).into()));
        }
    }
    let offset = |address: u64| {
        segments.iter().find_map(|(at, offset, size)| {
            let within = address.checked_sub(*at).filter(|within| within < size)?;
            offset.checked_add(within)
        })
    };
    let mut sites = Vec::new();
    let with_notes = sections.iter().filter(|section| {
        sections.section_name(endian, section).is_ok_and(|name| name == b".note.stapsdt")
    });
    for section in with_notes {
        let Some(mut notes) = section.notes(endian, data)? else { continue };
        while let Some(note) = notes.next()? {
            if note.name() != OWNER || note.n_type(endian) != TYPE {
                continue;
            }
            let Some(note) = Note::of(note.desc(), width, endian) else { continue };
            if note.provider != probe.provider.as_bytes() || note.name != probe.name.as_bytes() {
                continue;
            }
            let moved = base.filter(|_| note.base != 0).map_or(0, |at| at.wrapping_sub(note.base));
            let counter = Some(note.counter).filter(|counter| *counter != 0);
            let counter = counter.and_then(|counter| offset(counter.wrapping_add(moved)));
            let at = offset(note.address.wrapping_add(moved));
            sites.extend(at.map(|offset| Site { offset, counter }));
        }
    }
    Ok(sites)
}

/// What a note says.
struct Note<'data> {
    address: u64,
    base: u64,
    counter: u64,
    provider: &'data [u8],
    name: &'data [u8],
}

impl<'data> Note<'data> {
    fn of(text: &'data [u8], width: usize, endian: Endianness) -> Option<Self> {
        let (numbers, strings) = text.split_at_checked(3 * width)?;
        let number = |nth: usize| {
            let bytes = numbers.get(nth * width..(nth + 1) * width)?;
            let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
            Some(match endian {
                Endianness::Little => bytes.iter().rev().fold(0, fold),
                Endianness::Big => bytes.iter().fold(0, fold),
            })
        };
        let mut strings = strings.split(|byte| *byte == 0);
        let (provider, name) = (strings.next()?, strings.next()?);
        // The third is there, too, and may be empty.
        strings.next()?;
        let (address, base, counter) = (number(0)?, number(1)?, number(2)?);
        Some(Self { address, base, counter, provider, name })
    }
}

/// A path as `uprobe_events` takes it, which has no way to write a blank.
pub(crate) fn traced_path(path: &Path) -> io::Result<String> {
    let path = path.canonicalize()?;
    match path.to_str().filter(|text| !text.contains(char::is_whitespace)) {
        Some(text) => Ok(text.to_owned()),
        None => Err(invalid("its path has a blank")),
    }
}

#[cfg(test)]
pub(crate) mod tests;
