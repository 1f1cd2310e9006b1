//! Host memory that changes under the slots.

use std::ops::Range;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use mayfly_machine::address_space::{Backing, Protection};
use mayfly_memslot::{Hva, PAGE_SIZE};
use mayfly_stage2::Format;

use crate::book::{HUGE, Page, SLOTS, Version, first_page, pages_of};
use crate::crew::Seat;
use crate::random::Random;
use crate::round::Round;
use crate::tally::What;

/// What no page of a slot ever holds.
const STRAY: u64 = 0x57ea;

/// Changes memory until the round is over.
pub(crate) fn change<F: Format>(round: &Arc<Round<F>>, random: &mut Random, seat: &Seat) {
    let space = round.machine.space();
    while !round.tally.is_over() {
        let pages = some(random);
        let hvas = hvas(round, &pages);
        match random.below(10) {
            0..2 => {
                seat.at("protecting");
                protect(round, pages);
            }
            2..4 => {
                seat.at("aging");
                round.vm.age(hvas.start, hvas.end.get() - hvas.start.get());
                round.tally.add(What::Aged, 1);
            }
            4 => {
                seat.at("remapping");
                remap(round, pages, random);
            }
            5 => {
                seat.at("swapping out");
                let swapped = pages.filter(|&page| space.reclaim(round.hva(page))).count();
                round.tally.add(What::SwappedOut, swapped as u64);
            }
            6 => {
                seat.at("forking");
                fork(round, pages, random);
            }
            7 => {
                seat.at("moving");
                relocate(round, pages);
            }
            _ => {
                seat.at("migrating");
                let moved = pages.filter(|&page| space.migrate(round.hva(page)).unwrap()).count();
                round.tally.add(What::Migrated, moved as u64);
            }
        }
    }
}

/// Merges pages until the round is over.
pub(crate) fn merge<F: Format>(round: &Arc<Round<F>>, random: &mut Random, seat: &Seat) {
    let mut known = 0;
    while !round.tally.is_over() {
        seat.at("merging");
        round.merger.scan_batch();
        let merged = round.merger.statistics().pages_merged;
        round.tally.add(What::Merged, merged - known);
        known = merged;
        sleep(Duration::from_micros(random.below(1_000)));
    }
}

/// A few pages of one slot, or now and then many.
fn some(random: &mut Random) -> Range<usize> {
    let slot = random.below(SLOTS as u64) as usize;
    let pages = pages_of(slot);
    let most = if random.once_in(32) { pages } else { 4 };
    let first = random.below(pages as u64) as usize;
    let count = 1 + random.below(most.min(pages - first) as u64) as usize;
    first_page(slot) + first..first_page(slot) + first + count
}

fn hvas<F: Format>(round: &Round<F>, pages: &Range<usize>) -> Range<Hva> {
    round.hva(pages.start)..round.hva(pages.end)
}

/// Has pages be others, which are zero. The frames of those before are somebody else's then.
pub(crate) fn remap<F: Format>(round: &Round<F>, pages: Range<usize>, random: &mut Random) {
    let book = &round.book.pages[pages.clone()];
    let (space, hvas) = (round.machine.space(), hvas(round, &pages));
    let is_huge = pages.start.is_multiple_of(HUGE) && pages.len() == HUGE;
    let backing = if is_huge { Backing::HugePages } else { Backing::Pages };
    let map = || space.mmap(size(&pages), backing, Protection::ReadWrite).unwrap();
    let _mapping = round.mapping.lock().unwrap();
    if random.once_in(2) {
        step(book, |page| &page.era);
        space.munmap(hvas.clone()).unwrap();
        assert_eq!(map(), hvas.start, "it is the only gap");
        step(book, |page| &page.era);
    } else {
        // Pages that have frames take the places of others, which are still there, and are written.
        let other = map();
        from(other, &pages).for_each(|page| space.write_u64(page, 0).unwrap_or_default());
        step(book, |page| &page.era);
        let left = space.mremap(hvas.clone(), None).unwrap();
        space.mremap(other..end(other, &pages), Some(hvas.start)).unwrap();
        step(book, |page| &page.era);
        from(left, &pages).for_each(|page| space.write_u64(page, STRAY).unwrap_or_default());
        space.munmap(left..end(left, &pages)).unwrap();
    }
    round.tally.add(What::Remapped, 1);
}

/// Moves pages away, and back.
fn relocate<F: Format>(round: &Round<F>, pages: Range<usize>) {
    let book = &round.book.pages[pages.clone()];
    let (space, hvas) = (round.machine.space(), hvas(round, &pages));
    let _mapping = round.mapping.lock().unwrap();
    step(book, |page| &page.away);
    let away = space.mremap(hvas.clone(), None).unwrap();
    let back = space.mremap(away..end(away, &pages), Some(hvas.start)).unwrap();
    assert_eq!(back, hvas.start);
    step(book, |page| &page.away);
    round.tally.add(What::Moved, 1);
}

/// Has pages share their frames with a copy, which sees nothing of what guests write meanwhile.
fn fork<F: Format>(round: &Round<F>, pages: Range<usize>, random: &mut Random) {
    let space = round.machine.space();
    let _mapping = round.mapping.lock().unwrap();
    let copy = space.fork(hvas(round, &pages)).unwrap();
    let read = || from(copy, &pages).map(|hva| space.read_u64(hva).unwrap());
    let before: Vec<_> = read().collect();
    if random.once_in(2) {
        std::thread::yield_now();
    }
    assert!(read().eq(before), "a copy was written");
    space.munmap(copy..end(copy, &pages)).unwrap();
    round.tally.add(What::Forked, 1);
}

/// Forbids writes, looks whether there are any, and allows them.
fn protect<F: Format>(round: &Round<F>, pages: Range<usize>) {
    let book = &round.book.pages[pages.clone()];
    let (space, hvas) = (round.machine.space(), hvas(round, &pages));
    let _mapping = round.mapping.lock().unwrap();
    step(book, |page| &page.guard);
    space.mprotect(hvas.clone(), Protection::ReadOnly).unwrap();
    let read = || pages.clone().map(|page| space.read_u64(round.hva(page)).unwrap());
    let before: Vec<_> = read().collect();
    std::thread::yield_now();
    assert!(read().eq(before), "memory was written that may not be");
    space.mprotect(hvas, Protection::ReadWrite).unwrap();
    step(book, |page| &page.guard);
    round.tally.add(What::Protected, 1);
}

fn size(pages: &Range<usize>) -> u64 {
    pages.len() as u64 * PAGE_SIZE
}

/// Where as many pages as `pages` are, from `start` on.
fn from(start: Hva, pages: &Range<usize>) -> impl Iterator<Item = Hva> {
    (0..pages.len() as u64).map(move |page| Hva::new(start.get() + page * PAGE_SIZE))
}

/// Where so many pages end.
fn end(start: Hva, pages: &Range<usize>) -> Hva {
    Hva::new(start.get() + size(pages))
}

fn step(pages: &[Page], version: impl Fn(&Page) -> &Version) {
    for page in pages {
        version(page).step();
    }
}
