use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_memslot::{Gfn, Hva, LastHit, Region};

use crate::common::{LOG, MAIN, hva, region, slots};
use mayfly_platform::testing::threads::Over;

const CHANGES: u64 = if cfg!(miri) {
    20
} else if cfg!(debug_assertions) {
    2_000
} else {
    20_000
};

/// Runs `write`, while two vCPUs run `read` again and again on what they find.
fn race(
    write: impl FnOnce(&mayfly_memslot::MemSlots<Hva>) + Send,
    read: impl Fn(&mayfly_memslot::Snapshot<Hva>, &mut LastHit) + Sync,
) {
    let (domain, slots) = slots();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (vcpu, slots, done, read) = (domain.reader().unwrap(), &slots, &done, &read);
            scope.spawn(move || {
                let mut last = LastHit::default();
                let mut generation = 0;
                while !done.load(Ordering::Relaxed) {
                    let section = vcpu.lock();
                    let snapshot = slots.load(MAIN, &section);
                    assert!(snapshot.generation() >= generation, "time goes forward");
                    generation = snapshot.generation();
                    read(snapshot, &mut last);
                }
            });
        }
        let _over = Over(&done);
        write(&slots);
    });
}

#[test]
fn a_slot_that_moves_to_and_fro_is_always_in_exactly_one_place() {
    let place = |change| if change % 2 == 0 { 200 } else { 10 };
    race(
        |slots| {
            for index in 1..8 {
                slots.set(&region(index, 20 * u64::from(index), 10, 0)).unwrap();
            }
            // From before all others to behind them, so that every entry changes its place.
            for change in 0..CHANGES {
                slots.set(&region(0, place(change), 10, 500)).unwrap();
            }
        },
        |snapshot, last| {
            let places = [10, 200].map(|gfn| {
                let gfn = Gfn::new(gfn);
                let slot = snapshot.find_near(gfn, last)?;
                assert_eq!(slot.backing_of(gfn), Some(hva(500)));
                Some(gfn)
            });
            let backed: Vec<_> =
                snapshot.backed_by(hva(500), 1).map(|(_, gfns)| gfns.start).collect();
            assert_eq!(backed, places.into_iter().flatten().collect::<Vec<_>>());
            assert_eq!(backed.len(), usize::from(snapshot.len() == 8));
        },
    );
}

#[test]
fn slots_that_come_and_go_are_there_whole_or_not_at_all() {
    race(
        |slots| {
            slots.set(&region(0, 0, 8, 100)).unwrap();
            for change in 0..CHANGES {
                // The memory differs each time: what a snapshot says about a slot is all of one time.
                slots.set(&region(1, 8, 8, 1000 + 8 * change)).unwrap();
                slots.set(&region(1, 0, 0, 0)).unwrap();
            }
        },
        |snapshot, last| {
            let found = [8, 15].map(|gfn| snapshot.find_near(Gfn::new(gfn), last));
            match found.map(|slot| slot.map(|slot| slot.backing().get())) {
                [None, None] => assert!(snapshot.len() <= 1),
                [Some(first), Some(last)] => assert_eq!(first, last),
                mixed => panic!("half of a slot: {mixed:?}"),
            }
            if let Some(slot) = found[0] {
                let (traced, gfns) = snapshot.backed_by(slot.backing(), 8 * 4096).next().unwrap();
                assert_eq!(traced.id(), slot.id());
                assert_eq!(gfns, slot.gfns());
            }
        },
    );
}

#[test]
fn marks_made_while_a_slot_moves_and_is_harvested_are_each_found_after_the_write_they_stand_for() {
    const PAGES: usize = 64;
    let (domain, slots) = slots();
    let logging = |gfn| Region { flags: LOG, ..region(0, gfn, PAGES as u64, 0) };
    slots.set(&logging(0)).unwrap();
    // What is on each page: the round that last wrote it. The vCPUs share no page.
    let pages = [const { AtomicU64::new(0) }; PAGES];
    let mut copy = [0; PAGES];
    std::thread::scope(|scope| {
        let vcpus = [0, 1].map(|vcpu| {
            let (reader, slots, pages) = (domain.reader().unwrap(), &slots, &pages);
            scope.spawn(move || {
                for round in 1..=CHANGES / 10 {
                    for (number, page) in pages.iter().enumerate().skip(vcpu).step_by(2) {
                        let section = reader.lock();
                        let slot = slots.load(MAIN, &section).iter().next().unwrap();
                        page.store(round, Ordering::Relaxed);
                        slot.mark_dirty(Gfn::new(slot.base().get() + number as u64));
                    }
                }
            })
        });
        let mut move_and_harvest = |gfn| {
            let edit = slots.set(&logging(gfn)).unwrap().unwrap();
            let mut word = [0];
            edit.after().unwrap().dirty().unwrap().harvest(0, &mut word);
            for page in (0..PAGES).filter(|page| word[0] >> page & 1 == 1) {
                copy[page] = pages[page].load(Ordering::Relaxed);
            }
        };
        while vcpus.iter().any(|vcpu| !vcpu.is_finished()) {
            move_and_harvest(1000);
            move_and_harvest(0);
        }
        move_and_harvest(1000);
    });
    assert_eq!(copy, [CHANGES / 10; PAGES]);
}

#[test]
fn writers_that_race_undo_nothing_of_each_other_and_never_overlap() {
    let (domain, slots) = slots();
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|writer| {
            let (slots, start) = (&slots, &start);
            scope.spawn(move || {
                start.wait();
                for change in 0..CHANGES {
                    // Frames of its own, and some that both want.
                    let own = region(writer, 10 + 10 * u64::from(writer), 2, 0);
                    let shared = region(2 + writer, change % 3, 2, 0);
                    slots.set(&own).unwrap().expect("it was deleted");
                    match slots.set(&shared) {
                        Ok(_) => drop(slots.set(&Region { size: 0, ..shared }).unwrap()),
                        Err(error) => assert_eq!(error.errno(), 17),
                    }
                    slots.set(&Region { size: 0, ..own }).unwrap();
                }
            })
        });
        let vcpu = domain.reader().unwrap();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let section = vcpu.lock();
            let mut end = Gfn::new(0);
            for slot in slots.load(MAIN, &section).iter() {
                assert!(slot.base() >= end);
                end = slot.gfns().end;
            }
        }
    });
    assert!(slots.load(MAIN, &domain.read_lock()).is_empty());
}
