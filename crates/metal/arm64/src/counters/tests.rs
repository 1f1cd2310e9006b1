//! What a guest reads of its counters, and what counts.

use proptest::prelude::*;

use super::*;
use crate::sysreg::SysReg;

/// A Cortex-A72 has six counters; this one is of ARMv8.1.
const SIX: Offered = Offered { version: 4, count: 6, events: [0x7fff_0f3f, 0x3f] };
const ON: u64 = 1;

fn counters(writes: &[(Place, u64)]) -> Counters {
    let mut counters = Counters::default();
    for (place, value) in writes {
        assert_eq!(counters.write(*place, *value, false, &SIX), Some(()), "{place:?}");
    }
    counters
}

fn enable(bits: u64) -> (Place, u64) {
    (Place::Enabled { set: true }, bits)
}

#[test]
fn a_register_is_found_by_its_numbers() {
    let of = |op1, crn, crm, op2| Place::of(SysReg::new(3, op1, crn, crm, op2));
    assert_eq!(of(3, 9, 12, 0), Some(Place::Control));
    assert_eq!(of(0, 9, 14, 2), Some(Place::Interrupts { set: false }));
    assert_eq!(of(3, 14, 11, 6), Some(Place::Count(30)));
    assert_eq!(of(3, 14, 11, 7), None);
    assert_eq!(of(3, 14, 13, 1), Some(Place::Kind(9)));
    assert_eq!(of(3, 14, 15, 7), Some(Place::CycleFilter));
    assert_eq!(Place::of(SysReg::new(2, 3, 9, 12, 0)), None);
}

#[test]
fn a_guest_reads_how_many_counters_it_has_and_what_they_can_count() {
    let counters = counters(&[(Place::Control, u64::MAX)]);
    assert_eq!(counters.read(Place::Control, &SIX), Some(6 << 11 | 0x69));
    assert_eq!(counters.read(Place::Events(0), &SIX), Some(0x7fff_0f3f | 1 | 1 << 30));
    let narrow = Offered { version: 1, count: 31, events: [u64::MAX; 2] };
    assert_eq!(counters.read(Place::Control, &narrow), Some(6 << 11 | 0x69), "six at most");
    assert_eq!(counters.read(Place::Events(0), &narrow), Some(0xffff_ffff));
    assert_eq!(counters.read(Place::Events(1), &narrow), Some(0x1fff_ffff));
}

#[test]
fn a_counter_is_reached_by_its_number_and_as_the_selected_one() {
    let counters = counters(&[
        (Place::Select, 3),
        (Place::SelectedKind, 0xea),
        (Place::SelectedCount, 0xdead_beef),
        (Place::Select, 31),
        (Place::SelectedKind, u64::MAX),
    ]);
    assert_eq!(counters.read(Place::Kind(3), &SIX), Some(0xea));
    assert_eq!(counters.read(Place::Count(3), &SIX), Some(0xdead_beef));
    assert_eq!(counters.read(Place::CycleFilter, &SIX), Some(0xc000_0000), "EL2 is not counted");
    assert_eq!(counters.read(Place::SelectedCount, &SIX), None);
    assert_eq!(counters.read(Place::Count(6), &SIX), None, "there are six");
}

#[test]
fn an_overflow_of_the_processors_counter_interrupts_until_the_guest_has_cleared_it() {
    let mut counters = counters(&[
        (Place::Kind(2), 0x11),
        enable(1 << 2),
        (Place::Interrupts { set: true }, 1 << 2),
        (Place::Control, ON),
    ]);
    assert_eq!((counters.counting(), counters.interrupting()), (1 << 2, 1 << 2));
    counters.absorb(&Shown { counts: [9; MOST], overflows: u32::MAX, ..Shown::default() }, &SIX);
    assert!(counters.is_high());
    assert_eq!(counters.read(Place::Count(2), &SIX), Some(9));
    assert_eq!(counters.read(Place::Count(1), &SIX), Some(0), "it does not count");
    assert_eq!(counters.read(Place::Overflows { set: true }, &SIX), Some(1 << 2));
    counters.write(Place::Overflows { set: false }, 1 << 2, false, &SIX);
    assert!(!counters.is_high());
}

#[test]
fn a_chained_counter_counts_the_overflows_of_the_one_before() {
    let mut counters = counters(&[
        (Place::Kind(0), 0x11),
        (Place::Kind(1), CHAIN.into()),
        (Place::Count(1), 0xffff_ffff),
        enable(3),
        (Place::Control, ON),
    ]);
    assert_eq!((counters.counting(), counters.interrupting()), (1, 1));
    counters.absorb(&Shown { overflows: 1, ..Shown::default() }, &SIX);
    assert_eq!(counters.read(Place::Count(1), &SIX), Some(0));
    assert_eq!(counters.read(Place::Overflows { set: true }, &SIX), Some(3));
    assert!(!counters.is_high(), "no interrupt is enabled");
}

#[test]
fn software_increments_count_where_they_are_enabled_and_not_filtered() {
    let mut counters = counters(&[
        (Place::Count(0), 0xffff_ffff),
        (Place::Kind(1), CHAIN.into()),
        (Place::Kind(2), NOT_EL0.into()),
        (Place::Increment, 1),
        enable(7),
        (Place::Increment, 1),
        (Place::Control, ON),
        (Place::Increment, 0x1f),
    ]);
    counters.write(Place::Increment, 4, true, &SIX);
    let counts = [0, 1, 2, 3].map(|number| counters.read(Place::Count(number), &SIX));
    assert_eq!(counts, [Some(0), Some(1), Some(1), Some(0)]);
    assert_eq!(counters.counting(), 0, "the processor counts none of them");
}

#[test]
fn counters_of_armv8_5_have_64_bits_and_overflow_there_if_the_guest_wants() {
    let five = Offered { version: 6, ..SIX };
    let count_from = |control: u64, count: u64, offered: &Offered| {
        let mut counters = Counters::default();
        for (place, value) in [
            (Place::Kind(1), CHAIN.into()),
            (Place::Count(0), count),
            enable(3),
            (Place::Control, ON | control),
            (Place::Increment, 1),
        ] {
            counters.write(place, value, false, offered);
        }
        let read = |place| counters.read(place, offered).unwrap();
        (read(Place::Count(0)), read(Place::Overflows { set: true }), read(Place::Count(1)))
    };
    let (low, long) = (0xffff_ffff, LONG_EVENTS.into());
    assert_eq!(count_from(0, low, &five), (1 << 32, 1, 1));
    assert_eq!(count_from(long, low, &five), (1 << 32, 0, 0));
    assert_eq!(count_from(long, u64::MAX, &five), (0, 1, 0), "no overflow at 32 bits is chained");
    assert_eq!(count_from(long, u64::MAX, &SIX), (0, 1, 1), "ARMv8.1 has no such counters");
}

#[test]
fn control_resets_counts_and_keeps_what_is_counted() {
    let counters = counters(&[
        (Place::Cycles, 77),
        (Place::Count(5), 8),
        (Place::Kind(5), 0x11),
        (Place::Control, RESET_CYCLES | RESET_EVENTS),
    ]);
    assert_eq!(counters.read(Place::Cycles, &SIX), Some(0));
    assert_eq!(counters.read(Place::Count(5), &SIX), Some(0));
    assert_eq!(counters.read(Place::Kind(5), &SIX), Some(0x11));
}

#[test]
fn counters_are_used_once_one_is_enabled_and_not_by_a_kernel_that_turns_them_off() {
    let off = [
        (Place::Control, RESET_CYCLES | RESET_EVENTS),
        (Place::Enabled { set: false }, u64::MAX),
        (Place::Interrupts { set: false }, u64::MAX),
        (Place::User, 0),
    ];
    assert!(!counters(&off).is_used());
    assert!(counters(&[enable(1 << 31)]).is_used());
    assert!(counters(&[(Place::User, 1)]).is_used());
}

proptest! {
    #[test]
    fn what_a_guest_writes_never_has_the_processor_count_at_el2_or_more_than_there_is(
        writes in prop::collection::vec((0_u8..16, 0_u8..16, any::<u64>()), 0..64), count in 0_usize..32, version in 1_u64..7
    ) {
        let offered = Offered { version, count, events: [u64::MAX; 2] };
        let mut counters = Counters::default();
        for (crm, op2, value) in writes {
            let (op1, crn) = if op2 & 8 == 0 { (3, 9) } else { (3, 14) };
            if let Some(place) = Place::of(SysReg::new(3, op1, crn, crm, op2 & 7)) {
                counters.write(place, value, false, &offered);
            }
            counters.absorb(&Shown { cycles: value, counts: [value; MOST], overflows: value as u32 }, &offered);
        }
        let all = CYCLES | ((1 << count.min(MOST)) - 1);
        prop_assert_eq!((counters.counting() | counters.interrupting()) & !all, 0);
        prop_assert_eq!(counters.cycle_counter().1 & !0xc000_0000, 0);
        for number in 0..MOST {
            prop_assert_eq!(counters.event_counter(number).1 & !0xc000_ffff, 0);
        }
    }
}
