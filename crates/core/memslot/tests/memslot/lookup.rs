use mayfly_memslot::{Gfn, LastHit};

use crate::common::{MAIN, hva, region, slots};

#[test]
fn a_last_hit_of_another_snapshot_never_changes_the_answer() {
    let (domain, slots) = slots();
    let mut last = LastHit::default();
    let mut look = |gfn| {
        let section = domain.read_lock();
        let snapshot = slots.load(MAIN, &section);
        let near = snapshot.find_near(Gfn::new(gfn), &mut last).map(|slot| slot.id().index);
        assert_eq!(near, snapshot.find(Gfn::new(gfn)).map(|slot| slot.id().index));
        near
    };
    assert_eq!(look(16), None);
    for index in 0..4 {
        slots.set(&region(index, 16 * u64::from(index), 4, 0)).unwrap();
    }
    assert_eq!((look(48), look(49), look(52), look(48)), (Some(3), Some(3), None, Some(3)));
    // The last hit now names an entry that holds another slot, and then none at all.
    slots.set(&region(0, 0, 0, 0)).unwrap();
    assert_eq!((look(48), look(16)), (Some(3), Some(1)));
    for index in 1..4 {
        slots.set(&region(index, 0, 0, 0)).unwrap();
    }
    assert_eq!(look(48), None);
}

#[test]
fn host_memory_is_traced_to_every_slot_that_has_it() {
    let (domain, slots) = slots();
    // A slot over all of it, two that share half of it, one beside it.
    for region in [region(0, 0, 100, 0), region(1, 100, 10, 40), region(2, 200, 10, 45)] {
        slots.set(&region).unwrap();
    }
    slots.set(&region(3, 300, 10, 100)).unwrap();
    let section = domain.read_lock();
    let snapshot = slots.load(MAIN, &section);
    let traced = |page, bytes| {
        let mut traced: Vec<_> = snapshot
            .backed_by(hva(page), bytes)
            .map(|(slot, gfns)| (slot.id().index, gfns.start.get()..gfns.end.get()))
            .collect();
        traced.sort_by_key(|(index, _)| *index);
        traced
    };
    assert_eq!(traced(47, 4096), [(0, 47..48), (1, 107..108), (2, 202..203)]);
    assert_eq!(traced(47, 1), traced(47, 4096), "a frame counts for one of its bytes");
    assert_eq!(traced(49, 4097), [(0, 49..51), (1, 109..110), (2, 204..206)]);
    assert_eq!(traced(99, 8192), [(0, 99..100), (3, 300..301)]);
    assert_eq!(traced(110, u64::MAX), []);
    assert_eq!(traced(47, 0), []);
    assert_eq!(traced(0, u64::MAX).len(), 4);
}

#[test]
fn slots_are_found_by_the_guest_frames_that_they_overlap() {
    let (domain, slots) = slots();
    for index in 0..4 {
        slots.set(&region(index, 16 * u64::from(index), 4, 0)).unwrap();
    }
    let section = domain.read_lock();
    let snapshot = slots.load(MAIN, &section);
    let overlapping = |from, to| -> Vec<_> {
        snapshot.overlapping(Gfn::new(from)..Gfn::new(to)).map(|slot| slot.id().index).collect()
    };
    assert_eq!(overlapping(3, 17), [0, 1]);
    assert_eq!(overlapping(4, 16), []);
    assert_eq!(overlapping(19, 20), [1]);
    assert_eq!(overlapping(0, u64::MAX), [0, 1, 2, 3]);
    assert_eq!(overlapping(17, 17), []);
    assert_eq!(overlapping(u64::MAX, 0), []);
    assert_eq!(overlapping(u64::MAX, u64::MAX), []);
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of slots take Miri minutes")]
fn hundreds_of_slots_are_each_found_by_frame_and_by_memory() {
    const SLOTS: u16 = 600;
    let (domain, slots) = slots();
    for index in 0..SLOTS {
        // The second half of them shares the first half's memory.
        let page = u64::from(index % (SLOTS / 2));
        slots.set(&region(index, u64::from(index) * 2, 1, page)).unwrap();
    }
    let section = domain.read_lock();
    let snapshot = slots.load(MAIN, &section);
    for index in 0..SLOTS {
        let gfn = u64::from(index) * 2;
        assert_eq!(snapshot.find(Gfn::new(gfn)).unwrap().id().index, index);
        assert!(snapshot.find(Gfn::new(gfn + 1)).is_none());
    }
    for page in 0..u64::from(SLOTS / 2) {
        assert_eq!(snapshot.backed_by(hva(page), 1).count(), 2);
    }
    assert_eq!(snapshot.backed_by(hva(0), u64::MAX).count(), SLOTS.into());
}
