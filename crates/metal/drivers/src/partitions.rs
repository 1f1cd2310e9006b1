//! The partitions of a disk, as a GPT has them (UEFI Specification 2.10, chapter 5).
//!
//! A table is read once, and checked: signature, sizes, both checksums. Where the first is damaged, the second is read, at
//! the end of the disk. A partition is used only if all of it is where partitions may be, if it shares no sector with
//! another, and if no other has its name. So two partitions never have a sector in common, whatever the table says.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use gpt_disk_types::{GptHeader, GptPartitionEntry, GptPartitionName};

/// The bytes of a sector.
pub const SECTOR: usize = 512;

/// The bytes of a header, and of an entry.
const HEADER: u32 = 92;
const ENTRY: u32 = 128;
/// The most entries of a table, and the most partitions that are taken from it.
const MOST_ENTRIES: u32 = 1024;
const MOST_PARTITIONS: usize = 128;

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its name, as the table has it.
    pub name: GptPartitionName,
    /// Its sectors.
    pub sectors: Range<u64>,
    /// Why it is not used.
    pub wrong: Option<&'static str>,
}

impl Partition {
    /// Whether that is its name.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.chars().eq(name.chars())
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name is printed, and may be anything.
        let printed = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        self.name.chars().try_for_each(|c| write!(f, "{}", printed(c)))
    }
}

/// Why a disk has no partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum BadTable {
    /// There is no table.
    #[error("it has no GPT")]
    None,
    /// There is one, and it is damaged.
    #[error("its GPT is damaged")]
    Damaged,
    /// It cannot be read.
    #[error("it cannot be read")]
    Unreadable,
}

/// The partitions of a disk. All of its memory is allocated before the table is read.
#[derive(Debug)]
pub struct Partitions {
    all: Vec<Partition>,
    more: usize,
    is_second: bool,
}

impl Partitions {
    /// None yet.
    ///
    /// # Errors
    ///
    /// When there is no memory for them.
    pub fn try_new() -> Result<Self, alloc::collections::TryReserveError> {
        let mut all = Vec::new();
        all.try_reserve_exact(MOST_PARTITIONS)?;
        Ok(Self { all, more: 0, is_second: false })
    }

    /// All of them, in the order of the table.
    pub fn all(&self) -> &[Partition] {
        &self.all
    }

    /// How many more the table has than are known.
    pub const fn more(&self) -> usize {
        self.more
    }

    /// The first table is damaged, and these are of the second.
    pub const fn is_second(&self) -> bool {
        self.is_second
    }

    /// The partition of that name. `pause` is called for each that is compared.
    pub fn find(&self, name: &str, pause: impl Fn()) -> Option<&Partition> {
        self.all.iter().find(|partition| {
            pause();
            partition.is_named(name)
        })
    }

    /// The first names, at most so many, and how many more there are, for a message.
    pub const fn names(&self, most: usize) -> Names<'_> {
        Names { all: self, most }
    }

    /// Reads the tables of a disk of so many sectors, one of which `read` reads at a time. `pause` is called while what was
    /// read is judged.
    ///
    /// # Errors
    ///
    /// [`BadTable`].
    pub fn read<E>(
        &mut self,
        sectors: u64,
        mut read: impl FnMut(u64, &mut [u8; SECTOR]) -> Result<(), E>,
        pause: impl Fn(),
    ) -> Result<(), BadTable> {
        let last = sectors.checked_sub(1).ok_or(BadTable::None)?;
        let first = self.read_table(sectors, 1, &mut read);
        if let Err(why) = first {
            let second = self.read_table(sectors, last, &mut read);
            self.is_second = second.is_ok();
            if let Err(other) = second {
                self.all.clear();
                // Of two reasons, the one that says more.
                return Err(why.max(other));
            }
        }
        self.judge(pause);
        Ok(())
    }

    fn read_table<E>(
        &mut self,
        sectors: u64,
        at: u64,
        read: &mut impl FnMut(u64, &mut [u8; SECTOR]) -> Result<(), E>,
    ) -> Result<(), BadTable> {
        let mut sector = [0; SECTOR];
        let mut get = |number: u64, sector: &mut [u8; SECTOR]| {
            if number >= sectors {
                return Err(BadTable::Damaged);
            }
            read(number, sector).map_err(|_| BadTable::Unreadable)
        };
        // Sector 1 of a disk that has none.
        if at >= sectors {
            return Err(BadTable::None);
        }
        get(at, &mut sector)?;
        let header = Header::parse(&sector, at, sectors)?;
        self.all.clear();
        self.more = 0;
        let mut sum = crc32fast::Hasher::new();
        let each = SECTOR as u32 / ENTRY;
        for number in 0..header.entries.div_ceil(each) {
            get(header.first_entry + u64::from(number), &mut sector)?;
            let count = (header.entries - number * each).min(each);
            let bytes = &sector[..(count * ENTRY) as usize];
            sum.update(bytes);
            for entry in bytes.chunks_exact(ENTRY as usize) {
                self.take(&header, entry);
            }
        }
        if sum.finalize() != header.entries_sum {
            return Err(BadTable::Damaged);
        }
        Ok(())
    }

    fn take(&mut self, header: &Header, entry: &[u8]) {
        let entry: GptPartitionEntry = bytemuck::pod_read_unaligned(entry);
        if !entry.is_used() {
            return;
        }
        if self.all.len() == MOST_PARTITIONS {
            self.more += 1;
            return;
        }
        let (start, last) = (entry.starting_lba.to_u64(), entry.ending_lba.to_u64());
        let is_inside = header.usable.contains(&start) && header.usable.contains(&last);
        let wrong = match () {
            () if last < start => Some("it ends before it begins"),
            () if !is_inside => Some("it is not where partitions may be"),
            () => None,
        };
        let sectors = start..last.saturating_add(1);
        self.all.push(Partition { name: entry.name, sectors, wrong });
    }

    fn judge(&mut self, pause: impl Fn()) {
        for at in 0..self.all.len() {
            pause();
            let (before, rest) = self.all.split_at_mut(at);
            let Some(one) = rest.first_mut() else { break };
            for other in before {
                let shares =
                    one.sectors.start < other.sectors.end && other.sectors.start < one.sectors.end;
                for (meets, why) in [
                    (shares, "it shares sectors with another"),
                    (one.name == other.name, "another has its name"),
                ] {
                    if meets {
                        one.wrong.get_or_insert(why);
                        other.wrong.get_or_insert(why);
                    }
                }
            }
        }
    }
}

/// Some names of partitions, as [`Partitions::names`] gives them. They are printed without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    all: &'a Partitions,
    most: usize,
}

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.all.all.iter().take(self.most);
        let Some(first) = said.next() else { return f.write_str("(none)") };
        write!(f, "{first}")?;
        said.try_for_each(|next| write!(f, ", {next}"))?;
        match self.all.all.len().saturating_sub(self.most) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

/// What a header says that is used.
struct Header {
    first_entry: u64,
    entries: u32,
    entries_sum: u32,
    usable: Range<u64>,
}

impl Header {
    /// The header of the sector at `at`, of a disk of so many sectors.
    fn parse(sector: &[u8; SECTOR], at: u64, sectors: u64) -> Result<Self, BadTable> {
        let header: GptHeader = bytemuck::pod_read_unaligned(&sector[..HEADER as usize]);
        if !header.is_signature_valid() {
            return Err(BadTable::None);
        }
        let mut bytes = [0; HEADER as usize];
        bytes.copy_from_slice(&sector[..HEADER as usize]);
        bytes[16..20].fill(0);
        let entries = header.number_of_partition_entries.to_u32();
        let first_entry = header.partition_entry_lba.to_u64();
        let usable = header.first_usable_lba.to_u64()
            ..header.last_usable_lba.to_u64().saturating_add(1).min(sectors);
        let end = u64::from(entries).div_ceil(SECTOR as u64 / u64::from(ENTRY));
        let end = first_entry.saturating_add(end);
        // Partitions lie between the two tables: the first is before them, and the second behind.
        let is_apart = |range: Range<u64>| range.end <= usable.start || usable.end <= range.start;
        let makes_sense = header.header_size.to_u32() == HEADER
            && header.size_of_partition_entry.to_u32() == ENTRY
            && header.header_crc32.0.to_u32() == crc32fast::hash(&bytes)
            && header.my_lba.to_u64() == at
            && entries <= MOST_ENTRIES
            && is_apart(first_entry..end)
            && is_apart(0..2)
            && is_apart(sectors - 1..sectors);
        if !makes_sense {
            return Err(BadTable::Damaged);
        }
        let entries_sum = header.partition_entry_array_crc32.0.to_u32();
        Ok(Self { first_entry, entries, entries_sum, usable })
    }
}
