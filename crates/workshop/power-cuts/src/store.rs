//! The content of a disk whose cache is volatile.
//!
//! Each sector has a durable content, and *versions*: what was written to it since, one for each request. A flush makes the
//! versions durable that were there when the flush was asked for. At a cut, a random part of the versions survives, and the
//! last of a sector's that does is the sector's content from then on. So requests are dropped and reordered, and torn between
//! their sectors. A sector itself is never torn.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::random::Random;

/// The bytes of a sector.
pub const SECTOR: usize = 512;

/// A range of bytes that is not of whole sectors, or not within the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk has no such sectors")]
pub struct NoSuchSectors;

/// What had been written at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

#[derive(Debug)]
struct Version {
    request: u64,
    bytes: [u8; SECTOR],
}

/// What was lost at a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Sectors that had been written since they were last flushed.
    pub volatile: usize,
    /// Those of them that have not what was written last.
    pub lost: usize,
    /// Requests of which a part survived and a part did not.
    pub torn: usize,
}

/// The content of a disk.
#[derive(Debug)]
pub struct Store {
    durable: Vec<u8>,
    /// By the sector's number, the oldest first.
    versions: BTreeMap<usize, Vec<Version>>,
    requests: u64,
}

impl Store {
    /// A disk with this content, which is durable.
    ///
    /// # Errors
    ///
    /// [`NoSuchSectors`], where these are no whole sectors.
    pub fn new(content: Vec<u8>) -> Result<Self, NoSuchSectors> {
        if !content.len().is_multiple_of(SECTOR) {
            return Err(NoSuchSectors);
        }
        Ok(Self { durable: content, versions: BTreeMap::new(), requests: 0 })
    }

    /// Its bytes.
    pub const fn len(&self) -> usize {
        self.durable.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.durable.is_empty()
    }

    /// What is there after a cut at which all is lost that may be.
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    fn place(&self, offset: u64, len: usize) -> Result<usize, NoSuchSectors> {
        let start = usize::try_from(offset).map_err(|_| NoSuchSectors)?;
        let is_there = start.checked_add(len).is_some_and(|end| end <= self.durable.len());
        let is_whole = start.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR);
        if is_there && is_whole { Ok(start) } else { Err(NoSuchSectors) }
    }

    /// Reads what was written last.
    ///
    /// # Errors
    ///
    /// [`NoSuchSectors`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), NoSuchSectors> {
        let start = self.place(offset, into.len())?;
        into.copy_from_slice(&self.durable[start..start + into.len()]);
        let first = start / SECTOR;
        for (sector, versions) in self.versions.range(first..first + into.len() / SECTOR) {
            if let Some(last) = versions.last() {
                let at = (sector - first) * SECTOR;
                into[at..at + SECTOR].copy_from_slice(&last.bytes);
            }
        }
        Ok(())
    }

    /// Writes by one request. It is volatile.
    ///
    /// # Errors
    ///
    /// [`NoSuchSectors`].
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), NoSuchSectors> {
        let first = self.place(offset, from.len())? / SECTOR;
        self.requests += 1;
        for (sector, bytes) in (first..).zip(from.as_chunks().0) {
            let version = Version { request: self.requests, bytes: *bytes };
            self.versions.entry(sector).or_default().push(version);
        }
        Ok(())
    }

    /// What has been written by now.
    pub const fn now(&self) -> Moment {
        Moment(self.requests)
    }

    /// Makes durable what had been written at that moment.
    pub fn flush(&mut self, Moment(until): Moment) {
        let durable = &mut self.durable;
        self.versions.retain(|sector, versions| {
            let count = versions.partition_point(|version| version.request <= until);
            if let Some(last) = versions.drain(..count).next_back() {
                durable[sector * SECTOR..][..SECTOR].copy_from_slice(&last.bytes);
            }
            !versions.is_empty()
        });
    }

    /// Cuts the power.
    pub fn cut(&mut self, random: &mut Random) -> Loss {
        let mut loss = Loss { volatile: self.versions.len(), ..Loss::default() };
        // How much survives, and whether by whole requests.
        let (survives, is_whole) = (random.below(9), random.is(1, 2));
        let mut whole = HashMap::new();
        let (mut here, mut gone) = (BTreeSet::new(), BTreeSet::new());
        for (sector, versions) in std::mem::take(&mut self.versions) {
            let last = versions.last().map(|version| version.request);
            let mut survivor = None;
            for version in versions {
                let does = if is_whole {
                    *whole.entry(version.request).or_insert_with(|| random.is(survives, 8))
                } else {
                    random.is(survives, 8)
                };
                if does { &mut here } else { &mut gone }.insert(version.request);
                if does {
                    survivor = Some(version);
                }
            }
            loss.lost += usize::from(survivor.as_ref().map(|version| version.request) != last);
            if let Some(survivor) = survivor {
                self.durable[sector * SECTOR..][..SECTOR].copy_from_slice(&survivor.bytes);
            }
        }
        loss.torn = here.intersection(&gone).count();
        loss
    }
}
