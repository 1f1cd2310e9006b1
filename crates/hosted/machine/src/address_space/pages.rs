//! Which frame a page has: the host's own page table. Addresses are page numbers here.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_platform::address::Pfn;
use mayfly_platform::memory::OutOfMemory;
use mayfly_stage2::Level;

use super::swap::Swap;
use crate::Arena;

/// Pages of a chunk: what a huge page has.
const CHUNK: u64 = Level::MIB2.pages();

/// Where frames come from and go to.
#[derive(Clone, Copy)]
pub(super) struct Store<'a> {
    pub(super) arena: &'a Arena,
    pub(super) swap: &'a Swap,
}

/// Frames that are not mapped any more, in runs, and that somebody may still use for a moment.
pub(super) type Released = Vec<(Pfn, u64)>;

/// Where a page, or a chunk, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It has not been touched.
    Nowhere,
    /// In frames from this one on, which are its own.
    Frame(Pfn),
    /// In swap, under this number.
    Swap(u64),
    /// In this frame, which others may have as well: to be read only. A page alone, never a chunk.
    Shared(Pfn),
    /// On its way from this shared frame into one of its own: not to be used. A page alone, too.
    Leaving(Pfn),
}

const FRAME: u64 = 1;
const SWAP: u64 = 2;
const SHARED: u64 = 3;
const LEAVING: u64 = 4;
const TAG_BITS: u32 = 3;
const TAG: u64 = (1 << TAG_BITS) - 1;

/// A [`Place`], filled by whoever touches the page first, and otherwise changed only while nobody reads the table.
#[derive(Debug, Default)]
struct Slot(AtomicU64);

impl Slot {
    fn new(place: Place) -> Self {
        Self(AtomicU64::new(Self::encode(place)))
    }

    fn encode(place: Place) -> u64 {
        match place {
            Place::Nowhere => 0,
            Place::Frame(pfn) => pfn.get() << TAG_BITS | FRAME,
            Place::Swap(number) => number << TAG_BITS | SWAP,
            Place::Shared(pfn) => pfn.get() << TAG_BITS | SHARED,
            Place::Leaving(pfn) => pfn.get() << TAG_BITS | LEAVING,
        }
    }

    fn place(&self) -> Place {
        // Acquire, pairing with the release in `bring_in`: the frame's contents are those that it was given.
        let bits = self.0.load(Ordering::Acquire);
        let value = bits >> TAG_BITS;
        match bits & TAG {
            FRAME => Place::Frame(Pfn::new(value)),
            SWAP => Place::Swap(value),
            SHARED => Place::Shared(Pfn::new(value)),
            LEAVING => Place::Leaving(Pfn::new(value)),
            _ => Place::Nowhere,
        }
    }

    /// Its first frame of `1 << order`; brought in if there is none.
    fn bring_in(&self, order: u32, store: Store<'_>) -> Result<Held, OutOfMemory> {
        loop {
            let place = self.place();
            match place {
                Place::Frame(pfn) => return Ok(Held::Own(pfn)),
                Place::Shared(pfn) => return Ok(Held::Shared(pfn)),
                Place::Leaving(_) => return Ok(Held::Leaving),
                Place::Nowhere | Place::Swap(_) => {}
            }
            let pfn = store.arena.allocate(order)?;
            let is_current = match place {
                Place::Swap(number) => store.swap.load(number, store.arena, pfn),
                _ => true,
            };
            let filled = Self::encode(Place::Frame(pfn));
            // A number is not used again, so a slot that still says so is still the same page's.
            let installed = is_current
                && self
                    .0
                    .compare_exchange(
                        Self::encode(place),
                        filled,
                        Ordering::Release,
                        Ordering::Relaxed,
                    )
                    .is_ok();
            if !installed {
                store.arena.free(pfn, order);
                continue;
            }
            if let Place::Swap(number) = place {
                store.swap.forget(number);
            }
            return Ok(Held::Own(pfn));
        }
    }
}

/// How a page has a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// For itself.
    Own(Pfn),
    /// To be read only, for others may have it as well.
    Shared(Pfn),
    /// It is just getting one.
    Leaving,
}

/// 2 MiB of an address space, aligned.
#[derive(Debug)]
enum Chunk {
    /// One huge page; all of it in one area.
    Huge(Slot),
    /// Pages, of any areas; those of none are nowhere.
    Small(Box<[Slot]>),
}

impl Chunk {
    fn small() -> Self {
        Self::Small((0..CHUNK).map(|_| Slot::default()).collect())
    }

    /// The place of `page`, which is one of its pages.
    fn slot(&self, page: u64) -> &Slot {
        match self {
            Self::Huge(slot) => slot,
            Self::Small(slots) => &slots[(page % CHUNK) as usize],
        }
    }

    /// Makes a huge page pages, in the same frames.
    fn split(&mut self) -> &mut [Slot] {
        if let Self::Huge(slot) = self {
            let slots = match slot.place() {
                Place::Frame(first) => (0..CHUNK)
                    .map(|at| Slot::new(Place::Frame(Pfn::new(first.get() + at))))
                    .collect(),
                _ => (0..CHUNK).map(|_| Slot::default()).collect(),
            };
            *self = Self::Small(slots);
        }
        match self {
            Self::Small(slots) => slots,
            Self::Huge(_) => unreachable!("split above"),
        }
    }

    /// Makes pages a huge page where their frames are one.
    fn join(&mut self) {
        let Self::Small(slots) = self else { return };
        let place = slots[0].place();
        let is_huge = match place {
            Place::Nowhere => slots.iter().all(|slot| slot.place() == Place::Nowhere),
            Place::Frame(first) => {
                let follows = |(at, slot): (u64, &Slot)| {
                    slot.place() == Place::Frame(Pfn::new(first.get() + at))
                };
                Level::MIB2.is_aligned(first.get()) && (0..).zip(&**slots).all(follows)
            }
            Place::Swap(_) | Place::Shared(_) | Place::Leaving(_) => false,
        };
        if is_huge {
            *self = Self::Huge(Slot::new(place));
        }
    }
}

/// The pages of all areas whose frames come on demand.
#[derive(Debug, Default)]
pub(super) struct PageTable {
    chunks: HashMap<u64, Chunk>,
}

impl PageTable {
    /// Adds pages that are nowhere yet; huge ones are whole chunks.
    pub(super) fn insert(&mut self, pages: &Range<u64>, huge: bool) {
        for chunk in chunks_of(pages) {
            let number = chunk.start / CHUNK;
            if huge {
                self.chunks.insert(number, Chunk::Huge(Slot::default()));
            } else {
                self.chunks.entry(number).or_insert_with(Chunk::small);
            }
        }
    }

    /// The frame of a page of the table, brought in if there is none, and the size of the page that it is in.
    pub(super) fn bring_in(
        &self,
        page: u64,
        store: Store<'_>,
    ) -> Result<(Held, Level), OutOfMemory> {
        match &self.chunks[&(page / CHUNK)] {
            Chunk::Huge(slot) => {
                let held = match slot.bring_in(CHUNK.ilog2(), store)? {
                    Held::Own(first) => Held::Own(Pfn::new(first.get() + page % CHUNK)),
                    held => held,
                };
                Ok((held, Level::MIB2))
            }
            Chunk::Small(slots) => {
                Ok((slots[(page % CHUNK) as usize].bring_in(0, store)?, Level::PAGE))
            }
        }
    }

    /// Whether it has a place for what `page` has.
    pub(super) fn has_place(&self, page: u64) -> bool {
        self.chunks.contains_key(&(page / CHUNK))
    }

    /// Adds a place for what `page` has, and those around it, if there is none.
    pub(super) fn make_place(&mut self, page: u64) {
        self.chunks.entry(page / CHUNK).or_insert_with(Chunk::small);
    }

    /// Whether a page has anything: a frame, or something in swap.
    pub(super) fn is_touched(&self, page: u64) -> bool {
        let chunk = self.chunks.get(&(page / CHUNK));
        chunk.is_some_and(|chunk| chunk.slot(page).place() != Place::Nowhere)
    }

    /// Those of `pages` that have anything, in order. Looks at the chunks that it has places for.
    pub(super) fn touched(&self, pages: &Range<u64>) -> impl Iterator<Item = u64> {
        let (first, end) = (pages.start, pages.end);
        let chunks = chunks_of(pages)
            .filter_map(|within| Some((self.chunks.get(&(within.start / CHUNK))?, within)));
        chunks.flat_map(move |(chunk, within)| {
            let pages = within.start.max(first)..within.end.min(end);
            pages.filter(move |&page| chunk.slot(page).place() != Place::Nowhere)
        })
    }

    /// Takes out the frame of a page, which has nothing then; a huge page goes on as pages.
    pub(super) fn take(&mut self, page: u64) -> Option<Pfn> {
        let frame = self.frame(page)?;
        self.replace(page, Place::Nowhere);
        Some(frame)
    }

    /// How a page has a frame, if it has one.
    pub(super) fn held(&self, page: u64) -> Option<Held> {
        let chunk = self.chunks.get(&(page / CHUNK))?;
        let offset = if matches!(chunk, Chunk::Huge(_)) { page % CHUNK } else { 0 };
        match chunk.slot(page).place() {
            Place::Frame(pfn) => Some(Held::Own(Pfn::new(pfn.get() + offset))),
            Place::Shared(pfn) => Some(Held::Shared(pfn)),
            Place::Leaving(_) => Some(Held::Leaving),
            Place::Nowhere | Place::Swap(_) => None,
        }
    }

    /// The frame of a page, if it has one, while none is on its way into one of its own.
    pub(super) fn frame(&self, page: u64) -> Option<Pfn> {
        match self.held(page)? {
            Held::Own(pfn) | Held::Shared(pfn) => Some(pfn),
            Held::Leaving => None,
        }
    }

    /// Whether a page is in swap.
    pub(super) fn is_in_swap(&self, page: u64) -> bool {
        let chunk = self.chunks.get(&(page / CHUNK));
        chunk.is_some_and(|chunk| matches!(chunk.slot(page).place(), Place::Swap(_)))
    }

    /// Has a page that has a frame keep it to be read only, since others have it or are about to; a huge page goes on
    /// as pages. Who gives it a frame that it did not have has added a reference.
    pub(super) fn share(&mut self, page: u64, frame: Pfn) {
        self.replace(page, Place::Shared(frame));
    }

    /// Has a page keep a frame that nobody else has.
    pub(super) fn own(&mut self, page: u64, frame: Pfn) {
        self.replace(page, Place::Frame(frame));
    }

    /// Lets nobody use a page that is shared, until it has a frame of its own.
    pub(super) fn leave(&mut self, page: u64, frame: Pfn) {
        self.replace(page, Place::Leaving(frame));
    }

    /// Moves the pages from `from` on, to whose ends it has been split, to those of `to`, which are nowhere: their
    /// frames, and what they have in swap. Huge pages stay so where they are aligned.
    pub(super) fn relocate(&mut self, from: u64, to: &Range<u64>) {
        let mut page = to.start;
        while page < to.end {
            let source = page - to.start + from;
            let is_whole =
                [page, source].iter().all(|page| page % CHUNK == 0) && page + CHUNK <= to.end;
            if is_whole && let Some(Chunk::Huge(slot)) = self.chunks.get_mut(&(source / CHUNK)) {
                let moved = Chunk::Huge(std::mem::take(slot));
                self.chunks.insert(page / CHUNK, moved);
                page += CHUNK;
                continue;
            }
            let source_slot =
                |chunk: &mut Chunk| std::mem::take(&mut chunk.split()[(source % CHUNK) as usize]);
            let moved = self.chunks.get_mut(&(source / CHUNK)).map(source_slot);
            if let (Some(moved), Some(chunk)) = (moved, self.chunks.get_mut(&(page / CHUNK))) {
                chunk.split()[(page % CHUNK) as usize] = moved;
            }
            page += 1;
        }
    }

    /// Lets no huge page reach across the beginning of `page`.
    pub(super) fn split(&mut self, page: u64) {
        if !page.is_multiple_of(CHUNK)
            && let Some(chunk) = self.chunks.get_mut(&(page / CHUNK))
        {
            chunk.split();
        }
    }

    /// Makes huge pages again of these chunks, where their frames are one.
    pub(super) fn join(&mut self, chunks: impl Iterator<Item = Range<u64>>) {
        for chunk in chunks {
            if let Some(chunk) = self.chunks.get_mut(&(chunk.start / CHUNK)) {
                chunk.join();
            }
        }
    }

    /// Gives up what `pages` have, to whose ends it has been split.
    pub(super) fn remove(&mut self, pages: &Range<u64>, store: Store<'_>, released: &mut Released) {
        for within in chunks_of(pages) {
            let Some(chunk) = self.chunks.get_mut(&(within.start / CHUNK)) else { continue };
            match chunk {
                Chunk::Huge(slot) => release(slot, CHUNK, store, released),
                Chunk::Small(slots) => {
                    let first = pages.start.max(within.start) - within.start;
                    let end = pages.end.min(within.end) - within.start;
                    for slot in &mut slots[first as usize..end as usize] {
                        release(slot, 1, store, released);
                    }
                }
            }
        }
    }

    /// Forgets these chunks, of which no area has any page.
    pub(super) fn forget(&mut self, chunks: impl Iterator<Item = Range<u64>>) {
        for chunk in chunks {
            self.chunks.remove(&(chunk.start / CHUNK));
        }
    }

    /// Puts the contents of a page into swap.
    pub(super) fn swap_out(&mut self, page: u64, store: Store<'_>, released: &mut Released) {
        let Some(frame) = self.frame(page) else { return };
        let number = store.swap.store(store.arena, frame);
        self.replace(page, Place::Swap(number));
        released.push((frame, 1));
    }

    /// Puts the contents of a page into another frame. Returns whether it had one.
    pub(super) fn migrate(
        &mut self,
        page: u64,
        to: Pfn,
        store: Store<'_>,
        released: &mut Released,
    ) -> bool {
        let Some(frame) = self.frame(page) else { return false };
        copy(store.arena, frame, to);
        self.replace(page, Place::Frame(to));
        released.push((frame, 1));
        true
    }

    fn replace(&mut self, page: u64, place: Place) {
        if let Some(chunk) = self.chunks.get_mut(&(page / CHUNK)) {
            chunk.split()[(page % CHUNK) as usize] = Slot::new(place);
        }
    }
}

/// The chunks that have any of `pages`, each by the pages that it has.
pub(super) fn chunks_of(pages: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    (pages.start / CHUNK..pages.end.div_ceil(CHUNK))
        .map(|number| number * CHUNK..(number + 1) * CHUNK)
}

/// Has frame `to` hold what `from` does.
pub(super) fn copy(arena: &Arena, from: Pfn, to: Pfn) {
    for (from, to) in arena.words(from).zip(arena.words(to)) {
        to.store(from.load(Ordering::Acquire), Ordering::Relaxed);
    }
}

fn release(slot: &mut Slot, frames: u64, store: Store<'_>, released: &mut Released) {
    match std::mem::take(slot).place() {
        Place::Nowhere => {}
        Place::Swap(number) => store.swap.forget(number),
        Place::Frame(pfn) | Place::Shared(pfn) | Place::Leaving(pfn) => match released.last_mut() {
            // One run as long as it goes, so that blocks come back as blocks.
            Some((first, count)) if first.get() + *count == pfn.get() => *count += frames,
            _ => released.push((pfn, frames)),
        },
    }
}
