//! A balloon: virtio 1.2, 5.5. Its driver gives pages back that the guest does not use: those that the device asks for
//! (*inflates*), and, as reports, those that are free anyway.
//!
//! Each chain is the driver's again only when its pages were given to the embedder, so what the driver sees given back is
//! free. A chain of an inflation may have gigabytes of numbers of pages. So they are taken a piece at a time
//! ([`Mmio::take_pages`]), as what a console sends.
//!
//! The queue of reports is number 2, not 4 as the specification says: drivers and devices count the queues that there are
//! (Linux's `virtio_mmio` and QEMU, as of 6.12 and 9.0), and there is neither one of statistics nor one of hints.

use core::ops::Range;

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::backend::{Backend, sealed};
use super::chain::{Chain, Malformed};
use super::mmio::{Mmio, Served};
use super::queue::Used;
use crate::memory::GuestMemory;

/// The bytes of a page, of whatever size the guest's own are.
pub const PAGE_BYTES: u64 = 4096;

/// The most ranges of pages that are given to the embedder at a time.
pub const MOST_RANGES: usize = 64;

/// The queues, by number.
const INFLATE: usize = 0;
const DEFLATE: usize = 1;
const REPORT: usize = 2;

/// The most numbers of pages that are taken at a time: as many as Linux has in a chain.
const NUMBERS: usize = 256;
/// How many of them are read at a time.
const READ: usize = 64;
const NUMBER_BYTES: usize = size_of::<u32>();

mod feature {
    pub(super) const DEFLATE_ON_OOM: u64 = 1 << 2;
    pub(super) const PAGE_POISON: u64 = 1 << 4;
    pub(super) const REPORTING: u64 = 1 << 5;
}

/// What pages may read as that were given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Anything.
    Any,
    /// Zeroes, or what they read as before.
    Zeroes,
}

/// A balloon.
#[derive(Clone, Debug)]
pub struct Balloon {
    /// How many pages it asks for.
    target: u32,
    /// How many its driver says that it has.
    actual: u32,
    /// What its driver fills free pages with.
    poison: u32,
    /// How many bytes of the chain that is next to inflate it were taken already.
    taken: u64,
}

impl Balloon {
    /// One that asks for nothing.
    pub const fn new() -> Self {
        Self { target: 0, actual: 0, poison: 0, taken: 0 }
    }

    /// How many pages it asks for.
    pub const fn target(&self) -> u32 {
        self.target
    }

    /// How many pages its driver says that it has.
    pub const fn actual(&self) -> u32 {
        self.actual
    }
}

impl Default for Balloon {
    fn default() -> Self {
        Self::new()
    }
}

impl sealed::Device for Balloon {}

impl Backend for Balloon {
    const ID: u32 = 5;
    const QUEUES: usize = 3;
    /// Pages are taken, and not served.
    const SERVED: Option<usize> = None;
    const WRITTEN: &'static [u64] = &[0x104, 0x10c];
    const CHANGED: &'static [u64] = &[0x100];

    fn features(&self) -> u64 {
        feature::DEFLATE_ON_OOM | feature::PAGE_POISON | feature::REPORTING
    }

    /// What it asks for is the embedder's, and stays.
    fn reset(&mut self) {
        *self = Self { target: self.target, ..Self::new() };
    }

    fn forget(&mut self, queue: usize) {
        if queue == INFLATE {
            self.taken = 0;
        }
    }

    fn config(&self, offset: u64) -> u8 {
        let words = [self.target, self.actual, 0, self.poison];
        let word = words.get((offset / 4) as usize).copied().unwrap_or_default();
        word.to_le_bytes()[(offset % 4) as usize]
    }

    fn set_config(&mut self, offset: u64, value: u32, works: bool) {
        match offset {
            0x4 => self.actual = value,
            // It does not change while pages are reported that are filled with it.
            0xc if !works => self.poison = value,
            _ => {}
        }
    }

    /// All that it is.
    type Saved = Self;

    fn state(&self) -> Self {
        self.clone()
    }

    fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.u32(self.target);
        to.u32(self.actual);
        to.u32(self.poison);
        to.u64(self.taken);
    }

    fn saved(&self, from: &mut SectionReader<'_>) -> Result<Self, Error> {
        let (target, actual) = (from.u32("pages asked for")?, from.u32("pages had")?);
        let (poison, taken) = (from.u32("poison")?, from.u64("bytes taken")?);
        from.check("bytes taken", taken, taken.is_multiple_of(NUMBER_BYTES as u64))?;
        Ok(Self { target, actual, poison, taken })
    }

    fn adopt(&mut self, saved: Self) {
        *self = saved;
    }
}

impl Mmio<Balloon> {
    /// Asks its driver for so many pages, from now on. The driver is told, if that is another number and it works: one that
    /// begins later looks.
    pub fn ask_for(&mut self, pages: u32) {
        if core::mem::replace(&mut self.device_mut().target, pages) != pages && self.works() {
            self.tell_of_configuration();
        }
    }

    /// Takes pages of one chain of each queue, if there is one, and gives them to `free`, [`MOST_RANGES`] at a time: ranges of
    /// numbers of pages of [`PAGE_BYTES`], in order and apart from each other. They are anywhere: whether there is memory, and
    /// whether it is the guest's to give back, is for the embedder to say. What they may read as from then on is said beside.
    ///
    /// When `free` has returned they are the embedder's, until the guest touches them again. The driver may be told.
    pub fn take_pages(
        &mut self,
        memory: &impl GuestMemory,
        mut free: impl FnMut(&[Range<u64>], Contents),
    ) -> Served {
        let mut served = Served::Nothing;
        for queue in [INFLATE, DEFLATE, REPORT] {
            if self.is_live(queue) {
                let taken = self.take_next(queue, memory, &mut free);
                if self.unless_malformed(taken, false) {
                    served = Served::One;
                }
            }
        }
        served
    }

    /// Takes pages of the next chain of a queue, and gives it back when all of it was taken; whether there was one.
    #[inline(never)]
    fn take_next(
        &mut self,
        queue: usize,
        memory: &impl GuestMemory,
        free: &mut impl FnMut(&[Range<u64>], Contents),
    ) -> Result<bool, Malformed> {
        let mut chain = Chain::new();
        let Some(head) = self.next_chain(queue, &mut chain, memory)? else { return Ok(false) };
        let is_over = match queue {
            INFLATE => self.give_inflated(&chain, memory, free)?,
            REPORT => {
                self.give_reported(&chain, free)?;
                true
            }
            // The driver takes pages out of the balloon: each gets memory when the guest touches it.
            _ => true,
        };
        if is_over {
            self.give_back_chain(queue, Used { head, written: 0 }, memory)?;
        }
        Ok(true)
    }

    /// Gives pages to `free` that the driver has put into the balloon, by their numbers in the chain that was found; whether
    /// these are its last ones.
    fn give_inflated(
        &mut self,
        chain: &Chain,
        memory: &impl GuestMemory,
        free: &mut impl FnMut(&[Range<u64>], Contents),
    ) -> Result<bool, Malformed> {
        let begin = self.device().taken;
        let queue = self.queue(INFLATE);
        if chain.writable() != 0 {
            return Err(Malformed);
        }
        let mut ranges = Ranges::new();
        let end = ranges.read(chain, begin, memory);
        let is_over = end.is_none_or(|end| end >= whole_numbers(chain));
        if !is_over {
            queue.put_back(1);
        }
        self.device_mut().taken = end.filter(|_| !is_over).unwrap_or(0);
        ranges.give(Contents::Any, free);
        Ok(is_over)
    }

    /// Gives pages to `free` that the driver reports as free: the pieces of the chain that was found, which the device may
    /// write.
    fn give_reported(
        &self,
        chain: &Chain,
        free: &mut impl FnMut(&[Range<u64>], Contents),
    ) -> Result<(), Malformed> {
        let is_poisoned = self.has_agreed(feature::PAGE_POISON);
        let poison = self.device().poison;
        if chain.readable() != 0 {
            return Err(Malformed);
        }
        let contents = if is_poisoned { Contents::Zeroes } else { Contents::Any };
        // Pages that are to read as anything else stay as they are.
        if !is_poisoned || poison == 0 {
            let mut ranges = Ranges::new();
            for (address, bytes) in chain.written() {
                if !ranges.has_room() {
                    ranges.give(contents, free);
                }
                // The whole pages within. A chain has no piece beyond the last address.
                ranges.push(address.div_ceil(PAGE_BYTES)..(address + bytes) / PAGE_BYTES);
            }
            ranges.give(contents, free);
        }
        Ok(())
    }
}

/// The bytes of the whole numbers of a chain.
fn whole_numbers(chain: &Chain) -> u64 {
    chain.readable() / NUMBER_BYTES as u64 * NUMBER_BYTES as u64
}

/// Ranges of pages, as the driver names them.
struct Ranges {
    ranges: [Range<u64>; MOST_RANGES],
    count: usize,
}

impl Ranges {
    const fn new() -> Self {
        Self { ranges: [const { 0..0 }; MOST_RANGES], count: 0 }
    }

    const fn has_room(&self) -> bool {
        self.count < MOST_RANGES
    }

    /// Adds pages, where there is room. Nothing, if there are none. Linux names those that follow each other from the last one
    /// on, too.
    fn push(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        match self.ranges[..self.count].last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            Some(last) if last.start == pages.end => last.start = pages.start,
            _ => {
                self.ranges[self.count] = pages;
                self.count += 1;
            }
        }
    }

    /// Adds the pages whose numbers are in a chain from byte `begin` on, as many as there is room for. Returns where the
    /// others begin; `None` where they cannot be had.
    fn read(&mut self, chain: &Chain, begin: u64, memory: &impl GuestMemory) -> Option<u64> {
        let (mut at, end) = (begin, whole_numbers(chain));
        let end = end.min(begin.saturating_add((NUMBERS * NUMBER_BYTES) as u64));
        let mut bytes = [0; READ * NUMBER_BYTES];
        while at < end {
            let now = &mut bytes[..(end - at).min((READ * NUMBER_BYTES) as u64) as usize];
            chain.read(at, now, memory).ok()?;
            for number in now.as_chunks::<NUMBER_BYTES>().0 {
                if !self.has_room() {
                    return Some(at);
                }
                let page = u64::from(u32::from_le_bytes(*number));
                self.push(page..page + 1);
                at += NUMBER_BYTES as u64;
            }
        }
        Some(at)
    }

    /// Gives them to `free`, in order and each page once, and has none then.
    fn give(&mut self, contents: Contents, free: &mut impl FnMut(&[Range<u64>], Contents)) {
        let ranges = &mut self.ranges[..core::mem::take(&mut self.count)];
        if ranges.is_empty() {
            return;
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let mut last = 0;
        for next in 1..ranges.len() {
            let range = ranges[next].clone();
            if range.start <= ranges[last].end {
                ranges[last].end = ranges[last].end.max(range.end);
            } else {
                last += 1;
                ranges[last] = range;
            }
        }
        free(&ranges[..=last], contents);
    }
}
