use mayfly_memslot::{
    AddressSpace, Edit, Error, Flags, FrameRange, Gfn, Gpa, Hva, MAX_PAGES, MemSlots, PAGE_SIZE,
    PRIVATE_SLOTS, Region, SlotId, USER_SLOTS,
};
use mayfly_platform::address::{Hpa, Pfn};

use crate::common::{LOG, MAIN, NONE, domain, found, generation, hva, region, slots};

const EEXIST: i32 = 17;
const EINVAL: i32 = 22;

/// That `region` is refused with `error` and changes nothing.
#[track_caller]
fn refused(slots: &MemSlots<Hva>, region: &Region<Hva>, error: Error) {
    let before = format!("{slots:?}");
    assert_eq!(slots.set(region).unwrap_err(), error);
    assert_eq!(error.errno(), if matches!(error, Error::Overlap { .. }) { EEXIST } else { EINVAL });
    assert_eq!(format!("{slots:?}"), before);
}

#[test]
fn a_slot_is_created_moved_and_deleted() {
    let (domain, slots) = slots();
    assert!(matches!(slots.set(&region(0, 16, 4, 100)), Ok(Some(Edit::Create { .. }))));
    assert_eq!((found(&slots, &domain, 15), found(&slots, &domain, 16)), (None, Some(0)));
    assert_eq!((found(&slots, &domain, 19), found(&slots, &domain, 20)), (Some(0), None));

    let Ok(Some(Edit::Move { old, new })) = slots.set(&region(0, 32, 4, 100)) else { panic!() };
    assert_eq!((old.base(), new.base()), (Gfn::new(16), Gfn::new(32)));
    assert_eq!((found(&slots, &domain, 16), found(&slots, &domain, 35)), (None, Some(0)));

    let Ok(Some(Edit::Delete { old })) = slots.set(&region(0, 0, 0, 0)) else { panic!() };
    assert_eq!(old.base(), Gfn::new(32));
    assert_eq!(found(&slots, &domain, 35), None);
}

#[test]
fn every_change_makes_a_new_generation_and_nothing_else_does() {
    let (domain, slots) = slots();
    let mut last = generation(&slots, &domain);
    let log = Region { flags: LOG, ..region(0, 64, 4, 100) };
    for change in [region(0, 16, 4, 100), region(0, 64, 4, 100), log, region(0, 0, 0, 0)] {
        let made = slots.apply(&change).unwrap().unwrap().generation;
        assert!(made > last);
        assert_eq!(made, generation(&slots, &domain));
        last = made;
    }
    slots.set(&region(1, 0, 1, 0)).unwrap();
    last = generation(&slots, &domain);
    assert!(slots.set(&region(1, 0, 1, 0)).unwrap().is_none(), "it was so already");
    slots.set(&region(2, 0, 1, 0)).unwrap_err();
    assert_eq!(generation(&slots, &domain), last);
}

#[test]
fn an_existing_slot_keeps_its_size_memory_and_read_only_flag() {
    let (_domain, slots) = slots();
    let slot = SlotId::main(3);
    slots.set(&region(3, 16, 4, 100)).unwrap();
    let (has, size) = (4 * PAGE_SIZE, 5 * PAGE_SIZE);
    refused(&slots, &region(3, 16, 5, 100), Error::SizeChanged { slot, has, size });
    let (has, position) = (hva(100).get(), hva(101).get());
    refused(&slots, &region(3, 16, 4, 101), Error::BackingChanged { slot, has, position });
    let readonly = Region { flags: Flags::READONLY, ..region(3, 16, 4, 100) };
    refused(&slots, &readonly, Error::ReadOnlyChanged { slot });
}

#[test]
fn a_slot_overlaps_no_other_and_may_move_over_itself() {
    let (_domain, slots) = slots();
    slots.set(&region(0, 16, 4, 100)).unwrap();
    slots.set(&region(1, 20, 4, 200)).unwrap();
    let overlap =
        |slot, other| Error::Overlap { slot: SlotId::main(slot), other: SlotId::main(other) };
    for (gfn, pages, other) in [(16, 4, 0), (0, 17, 0), (19, 1, 0), (0, 100, 0), (23, 9, 1)] {
        refused(&slots, &region(2, gfn, pages, 300), overlap(2, other));
    }
    refused(&slots, &region(0, 17, 4, 100), overlap(0, 1));
    assert!(matches!(slots.set(&region(0, 14, 4, 100)), Ok(Some(Edit::Move { .. }))));
    slots.set(&region(2, 18, 2, 300)).unwrap();
}

#[test]
fn a_missing_slot_cannot_be_deleted() {
    let (_domain, slots) = slots();
    refused(&slots, &region(9, 0, 0, 0), Error::NoSuchSlot { slot: SlotId::main(9) });
    slots.set(&region(9, 0, 1, 0)).unwrap();
    slots.set(&region(9, 0, 0, 0)).unwrap();
    refused(&slots, &region(9, 0, 0, 0), Error::NoSuchSlot { slot: SlotId::main(9) });
}

#[test]
fn misaligned_regions_are_refused_even_where_they_would_delete() {
    let (_domain, slots) = slots();
    slots.set(&region(0, 16, 4, 100)).unwrap();
    for size in [0, PAGE_SIZE] {
        let good = Region { size, ..region(0, 16, 4, 100) };
        for off in [1, 8, PAGE_SIZE - 1] {
            let gpa = Gpa::new(good.gpa.get() + off);
            refused(&slots, &Region { gpa, ..good }, Error::MisalignedGpa { gpa });
            let size = size + off;
            refused(&slots, &Region { size, ..good }, Error::MisalignedSize { size });
            let position = good.backing.get() + off;
            let misaligned = Region { backing: Hva::new(position), ..good };
            refused(&slots, &misaligned, Error::MisalignedBacking { position });
        }
    }
}

#[test]
fn regions_that_wrap_around_are_refused() {
    let (_domain, slots) = slots();
    let last_page = u64::MAX - (PAGE_SIZE - 1);
    let at_end = Region { gpa: Gpa::new(last_page), ..region(0, 0, 1, 0) };
    let (gpa, size) = (at_end.gpa, PAGE_SIZE);
    refused(&slots, &at_end, Error::GpaWraps { gpa, size });
    let at_end = Region { backing: Hva::new(last_page), ..region(0, 0, 1, 0) };
    refused(&slots, &at_end, Error::BackingTooShort { position: last_page, size });
}

#[test]
fn a_slot_has_at_most_as_many_pages_as_a_dirty_log_can_name() {
    let (domain, slots) = slots();
    let pages = MAX_PAGES + 1;
    refused(&slots, &region(0, 0, pages, 0), Error::TooManyPages { pages });
    slots.set(&region(0, 0, MAX_PAGES, 0)).unwrap();
    assert_eq!(found(&slots, &domain, MAX_PAGES - 1), Some(0));
}

#[test]
fn bits_that_stand_for_no_flag_are_refused() {
    let (_domain, slots) = slots();
    for bit in (2..u32::BITS).map(|bit| 1 << bit) {
        let flags = Flags::from_bits_retain(bit | 1);
        let unknown = Error::UnknownFlags { flags: Flags::from_bits_retain(bit) };
        refused(&slots, &Region { flags, ..region(0, 0, 1, 0) }, unknown);
    }
}

#[test]
fn extreme_arguments_are_refused() {
    let (_domain, slots) = slots();
    let extremes = [0, 1, PAGE_SIZE - 1, PAGE_SIZE, u64::MAX - (PAGE_SIZE - 1), u64::MAX];
    for gpa in extremes.map(Gpa::new) {
        for backing in extremes.map(Hva::new) {
            for size in extremes.into_iter().filter(|&size| size != PAGE_SIZE) {
                for index in [0, USER_SLOTS - 1, USER_SLOTS, u16::MAX] {
                    let slot = SlotId::main(index);
                    let region = Region { slot, flags: NONE, gpa, size, backing };
                    assert_eq!(slots.set(&region).unwrap_err().errno(), EINVAL);
                }
            }
        }
    }
}

#[test]
fn private_slots_are_set_by_the_call_for_them_and_by_no_other() {
    let (domain, slots) = slots();
    for index in [0, USER_SLOTS - 1] {
        let user = region(index, u64::from(index), 1, 0);
        let out_of_range = Error::SlotOutOfRange { slot: user.slot };
        assert_eq!(slots.set_private(&user).unwrap_err(), out_of_range);
        slots.set(&user).unwrap();
    }
    for index in USER_SLOTS..USER_SLOTS + PRIVATE_SLOTS {
        let private = region(index, 1 + u64::from(index), 1, 0);
        refused(&slots, &private, Error::SlotOutOfRange { slot: private.slot });
        slots.set_private(&private).unwrap();
        assert_eq!(found(&slots, &domain, 1 + u64::from(index)), Some(index));
        assert_eq!(
            slots.set_private(&Region { flags: LOG, ..private }).unwrap_err(),
            Error::PrivateFlags { flags: LOG }
        );
    }
    for index in [USER_SLOTS + PRIVATE_SLOTS, u16::MAX] {
        let none = region(index, 0, 1, 0);
        let out_of_range = Error::SlotOutOfRange { slot: none.slot };
        refused(&slots, &none, out_of_range);
        assert_eq!(slots.set_private(&none).unwrap_err(), out_of_range);
    }
}

#[test]
fn a_private_slot_may_be_larger_than_a_dirty_log() {
    let (domain, slots) = slots();
    slots.set_private(&region(USER_SLOTS, 0, MAX_PAGES + 1, 0)).unwrap();
    assert_eq!(found(&slots, &domain, MAX_PAGES), Some(USER_SLOTS));
}

#[test]
fn no_slot_comes_to_have_a_frame_that_guests_cannot_address() {
    let (host, domain) = domain();
    let slots = MemSlots::try_with_smm(host, &domain).unwrap().below(Gfn::new(100));
    let past = |region: &Region<Hva>| Error::GpaOutOfRange {
        gpa: region.gpa,
        size: region.size,
        limit: Gfn::new(100),
    };
    slots.set(&region(0, 96, 4, 0)).unwrap();
    let over = region(1, 99, 2, 8);
    refused(&slots, &over, Error::Overlap { slot: over.slot, other: SlotId::main(0) });
    for far in [region(1, 100, 1, 8), region(1, 1 << 40, 1, 8)] {
        refused(&slots, &far, past(&far));
        let private = Region { slot: SlotId::main(USER_SLOTS), ..far };
        assert_eq!(slots.set_private(&private).unwrap_err(), past(&far));
        let smm = Region { slot: SlotId::smm(0), ..far };
        refused(&slots, &smm, past(&far));
    }
    // Neither by a move; which may go as far as the last one.
    slots.set(&region(1, 0, 2, 8)).unwrap();
    slots.set(&Region { size: 0, ..region(0, 0, 4, 0) }).unwrap();
    refused(&slots, &over, past(&over));
    slots.set(&region(1, 98, 2, 8)).unwrap();
    // A size of zero is nowhere.
    slots.set(&Region { size: 0, ..region(1, 1 << 40, 0, 8) }).unwrap();
}

#[test]
fn address_spaces_have_slots_of_their_own() {
    let (host, domain) = domain();
    let slots = MemSlots::try_with_smm(host, &domain).unwrap();
    slots.set(&region(0, 16, 4, 100)).unwrap();
    slots.set(&Region { slot: SlotId::smm(0), ..region(0, 18, 4, 200) }).unwrap();
    let section = domain.read_lock();
    let backing =
        |space, gfn| slots.load(space, &section).find(Gfn::new(gfn))?.backing_of(Gfn::new(gfn));
    assert_eq!((backing(MAIN, 18), backing(MAIN, 20)), (Some(hva(102)), None));
    assert_eq!(
        (backing(AddressSpace::Smm, 18), backing(AddressSpace::Smm, 17)),
        (Some(hva(200)), None)
    );
}

#[test]
fn no_two_snapshots_of_a_vm_have_the_same_generation() {
    let (host, domain) = domain();
    let slots = MemSlots::try_with_smm(host, &domain).unwrap();
    let mut seen: Vec<u64> = [MAIN, AddressSpace::Smm]
        .map(|space| slots.load(space, &domain.read_lock()).generation())
        .into();
    for index in 0..4 {
        let region = region(index, u64::from(index), 1, 0);
        for slot in [SlotId::main(index), SlotId::smm(index)] {
            seen.push(slots.apply(&Region { slot, ..region }).unwrap().unwrap().generation);
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 10);
}

#[test]
fn without_system_management_mode_its_address_space_is_empty_and_stays_so() {
    let (domain, slots) = slots();
    let smm = Region { slot: SlotId::smm(0), ..region(0, 0, 1, 0) };
    refused(&slots, &smm, Error::NoSuchSpace { space: 1 });
    assert!(slots.load(AddressSpace::Smm, &domain.read_lock()).is_empty());
}

#[test]
fn a_slot_of_frames_reaches_as_far_as_they_do_and_is_found_by_where_they_are() {
    let (platform, domain) = domain();
    let slots = MemSlots::<FrameRange>::try_new(platform, &domain).unwrap();
    let frames = FrameRange::new(Pfn::new(0x100), 4).unwrap();
    assert_eq!((frames.hpa(), frames.bytes()), (Hpa::new(0x10_0000), 4 * PAGE_SIZE));
    let region = |size| Region {
        slot: SlotId::main(0),
        flags: NONE,
        gpa: Gpa::new(0),
        size,
        backing: frames,
    };
    let (position, size) = (0x10_0000, 5 * PAGE_SIZE);
    let error = slots.set(&region(size)).unwrap_err();
    assert_eq!(error, Error::BackingTooShort { position, size });
    slots.set(&region(4 * PAGE_SIZE)).unwrap();
    let section = domain.read_lock();
    let slot = slots.load(MAIN, &section).find(Gfn::new(3)).cloned().unwrap();
    let last = slot.backing_of(Gfn::new(3)).unwrap();
    assert_eq!((last.hpa(), last.bytes()), (Hpa::new(0x10_3000), PAGE_SIZE));

    assert_eq!(FrameRange::new(Pfn::new((1 << 52) - 1), 1), None, "its end has no address");
    assert_eq!(FrameRange::new(Pfn::new(1), u64::MAX), None);
}
