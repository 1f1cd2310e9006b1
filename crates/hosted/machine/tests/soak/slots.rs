//! Slots that come, move and go, and their dirty logs.

use std::sync::Arc;

use mayfly_memslot::{Flags, PAGE_SIZE, Region, SlotId};
use mayfly_stage2::Format;

use crate::book::{PLACES, Page, SLOTS, base, count_in, first_page, pages_of};
use crate::crew::Seat;
use crate::host::remap;
use crate::random::Random;
use crate::round::Round;
use crate::tally::What;

/// A slot that there is.
struct Slot {
    place: u64,
    log: Option<Log>,
}

/// What a slot's log has told: the last write to each page that is known of, or must not be asked for.
struct Log(Vec<u64>);

/// Changes slots, and harvests their logs, until the round is over. Slots are left as they are.
pub(crate) fn change<F: Format>(round: &Arc<Round<F>>, random: &mut Random, seat: &Seat) {
    let mut slots: [Option<Slot>; SLOTS] = [const { None }; SLOTS];
    while !round.tally.is_over() {
        let number = random.below(SLOTS as u64) as usize;
        match &mut slots[number] {
            None => {
                seat.at("creating a slot");
                slots[number] = Some(create(round, number, random));
            }
            here @ Some(_) if random.once_in(5) => {
                seat.at("deleting a slot");
                *here = None;
                delete(round, number, random);
            }
            Some(slot) => match random.below(4) {
                0 => {
                    seat.at("moving a slot");
                    slot.place = (slot.place + 1) % PLACES;
                    set(round, number, Some(slot.place), slot.log.is_some());
                    round.tally.add(What::SlotMoved, 1);
                }
                1 => {
                    seat.at("switching a log");
                    set(round, number, Some(slot.place), slot.log.is_none());
                    slot.log = slot.log.is_none().then(|| Log::new(round, number));
                    round.tally.add(What::LogSwitched, 1);
                }
                _ => {
                    seat.at("harvesting a log");
                    if let Some(log) = &mut slot.log {
                        log.harvest(round, number);
                        round.tally.add(What::LogHarvested, 1);
                    }
                }
            },
        }
    }
}

fn create<F: Format>(round: &Round<F>, number: usize, random: &mut Random) -> Slot {
    let (place, logs) = (random.below(PLACES), random.once_in(2));
    set(round, number, Some(place), logs);
    round.tally.add(What::SlotCreated, 1);
    Slot { place, log: logs.then(|| Log::new(round, number)) }
}

fn delete<F: Format>(round: &Round<F>, number: usize, random: &mut Random) {
    set(round, number, None, false);
    round.tally.add(What::SlotDeleted, 1);
    if random.once_in(2) {
        remap(round, first_page(number)..first_page(number) + pages_of(number), random);
    }
}

/// Has the slot be at `place`, or be no more.
fn set<F: Format>(round: &Round<F>, number: usize, place: Option<u64>, logs: bool) {
    let size = place.map_or(0, |_| pages_of(number) as u64 * PAGE_SIZE);
    let region = Region {
        slot: SlotId::main(number as u16),
        flags: if logs { Flags::LOG_DIRTY_PAGES } else { Flags::empty() },
        gpa: base(number, place.unwrap_or(0)),
        size,
        backing: round.hva(first_page(number)),
    };
    round.book.change_slot(number, place, || round.vm.set_memory_region(&region).unwrap());
}

impl Log {
    /// From now on; what was begun to be written before need not be told.
    fn new<F: Format>(round: &Round<F>, slot: usize) -> Self {
        Self(book(round, slot).iter().map(Page::begun).collect())
    }

    /// Takes the marks, looks at the pages that they stand for, and then must know every write that was done before.
    fn harvest<F: Format>(&mut self, round: &Round<F>, slot: usize) {
        let book = book(round, slot);
        let before: Vec<_> = book.iter().map(|page| (page.era.get(), page.done())).collect();
        let mut words = vec![0; pages_of(slot).div_ceil(64)];
        round.vm.harvest_dirty(SlotId::main(slot as u16), 0, &mut words).unwrap();
        for (at, known) in self.0.iter_mut().enumerate() {
            if words[at / 64] >> (at % 64) & 1 == 1 {
                *known = last_write(round, first_page(slot) + at);
            }
            let (era, (era_written, written)) = before[at];
            let must_be_known = book[at].era.is_settled(era) && era_written == era;
            assert!(
                !must_be_known || *known >= written,
                "the log has missed write {written} to page {at} of slot {slot}: it told of {known}"
            );
        }
    }
}

/// The last write to a page, as the host finds it; or the last that may be in it, where memory is just changing.
fn last_write<F: Format>(round: &Round<F>, page: usize) -> u64 {
    let book = &round.book.pages[page];
    let (era, away) = (book.era.get(), book.away.get());
    let found = round.machine.space().read_u64(round.hva(page));
    if book.era.is_settled(era) && book.away.is_settled(away) {
        count_in(page, found.expect("it is mapped"))
    } else {
        book.begun()
    }
}

fn book<F: Format>(round: &Round<F>, slot: usize) -> &[Page] {
    &round.book.pages[first_page(slot)..first_page(slot) + pages_of(slot)]
}
