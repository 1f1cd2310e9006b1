use mayfly_memslot::{Edit, Flags, Gfn, Hva, MemSlots, Region};
use mayfly_srcu::Srcu;

use crate::common::{LOG, MAIN, NONE, region, slots};

fn mark(slots: &MemSlots<Hva>, domain: &Srcu, gfn: u64) {
    let section = domain.read_lock();
    slots.load(MAIN, &section).find(Gfn::new(gfn)).unwrap().mark_dirty(Gfn::new(gfn));
}

/// The pages that are marked in the slot that has `gfn`; none if it has no log.
fn harvest(slots: &MemSlots<Hva>, domain: &Srcu, gfn: u64) -> Option<u64> {
    let section = domain.read_lock();
    let mut word = [0];
    slots.load(MAIN, &section).find(Gfn::new(gfn)).unwrap().dirty()?.harvest(0, &mut word);
    Some(word[0])
}

#[test]
fn pages_are_logged_by_their_place_in_the_slot_and_only_while_the_flag_is_set() {
    let (domain, slots) = slots();
    let plain = region(0, 16, 8, 100);
    slots.set(&plain).unwrap();
    mark(&slots, &domain, 17);
    assert_eq!(harvest(&slots, &domain, 16), None);

    let logging = Region { flags: LOG, ..plain };
    assert!(matches!(slots.set(&logging), Ok(Some(Edit::Flags { .. }))));
    assert_eq!(harvest(&slots, &domain, 16), Some(0));
    mark(&slots, &domain, 17);
    mark(&slots, &domain, 23);
    assert_eq!(harvest(&slots, &domain, 16), Some(1 << 1 | 1 << 7));

    mark(&slots, &domain, 18);
    slots.set(&plain).unwrap();
    assert_eq!(harvest(&slots, &domain, 16), None);
    slots.set(&logging).unwrap();
    assert_eq!(harvest(&slots, &domain, 16), Some(0), "a new log is empty");
}

#[test]
fn a_slot_that_moves_keeps_its_log() {
    let (domain, slots) = slots();
    slots.set(&Region { flags: LOG, ..region(0, 16, 8, 100) }).unwrap();
    mark(&slots, &domain, 18);
    slots.set(&Region { flags: LOG, ..region(0, 64, 8, 100) }).unwrap();
    mark(&slots, &domain, 65);
    assert_eq!(harvest(&slots, &domain, 64), Some(1 << 2 | 1 << 1));
}

#[test]
fn a_change_of_another_slot_leaves_a_log_as_it_is() {
    let (domain, slots) = slots();
    slots.set(&Region { flags: LOG, ..region(0, 16, 8, 100) }).unwrap();
    mark(&slots, &domain, 18);
    slots.set(&region(1, 0, 8, 100)).unwrap();
    slots.set(&region(1, 0, 0, 0)).unwrap();
    assert_eq!(harvest(&slots, &domain, 16), Some(1 << 2));
}

#[test]
fn the_last_marks_of_a_deleted_slot_are_still_there_to_harvest() {
    let (domain, slots) = slots();
    slots.set(&Region { flags: LOG, ..region(0, 16, 8, 100) }).unwrap();
    mark(&slots, &domain, 18);
    let edit = slots.set(&region(0, 0, 0, 0)).unwrap().unwrap();
    let mut word = [0];
    assert_eq!(edit.before().unwrap().dirty().unwrap().harvest(0, &mut word), 1);
    assert_eq!(word, [1 << 2]);
}

#[test]
fn a_mark_outside_the_slot_has_no_effect() {
    let (domain, slots) = slots();
    slots.set(&Region { flags: LOG, ..region(0, 16, 8, 100) }).unwrap();
    let section = domain.read_lock();
    let slot = slots.load(MAIN, &section).find(Gfn::new(16)).unwrap();
    for gfn in [0, 15, 24, u64::MAX] {
        slot.mark_dirty(Gfn::new(gfn));
        assert_eq!(slot.backing_of(Gfn::new(gfn)), None);
    }
    let mut word = [0];
    assert_eq!(slot.dirty().unwrap().harvest(0, &mut word), 0);
}

#[test]
fn a_read_only_slot_can_be_logged_without_becoming_writable() {
    let (domain, slots) = slots();
    let readonly = Region { flags: Flags::READONLY, ..region(0, 16, 8, 100) };
    slots.set(&readonly).unwrap();
    slots.set(&Region { flags: Flags::READONLY | LOG, ..readonly }).unwrap();
    assert_eq!(harvest(&slots, &domain, 16), Some(0));
    slots.set(&Region { flags: NONE, ..readonly }).unwrap_err();
}
