//! Small runs of every variant.

use mayfly_stage2::{Arm, Ept, Format};

use super::deaf::DEAF;
use super::names::{CHANGE_PTE, INVALIDATE};
use super::rounds::{Measured, measure};
use super::shape::Shape;
use crate::experiment::Variant;
use crate::params::Size;

const SHAPE: Shape = Shape { vms: 3, vcpus: 2, rounds: 1, memory: Size::UNIT, pages_a_change: 1 };

/// How often guests may be without a processor while pages are merged, of runs that follow each other.
const TURNS: u32 = 5;

/// What has to be so under every variant.
fn run<F: Format>(variant: &str) -> Measured {
    let measured = measure::<F>(variant, SHAPE, 1).unwrap();
    let Measured { tally, shared, expected, .. } = &measured;
    assert!(tally.reads > 0, "{variant}, {}", F::NAME);
    assert_eq!(tally.mismatches, 0, "{variant}, {}, of {}", F::NAME, tally.reads);
    assert_eq!((shared, measured.unbalanced), (&[*expected; 2], 0), "{variant}, {}", F::NAME);
    assert_eq!(measured.leaked, 0, "{variant}, {}", F::NAME);
    assert!(measured.merged >= expected.sharing + expected.zero);
    assert!(measured.broken >= expected.sharing + expected.frames);
    measured
}

fn compare<F: Format>() {
    let [invalidate, change_pte, mayfly] =
        [INVALIDATE, CHANGE_PTE, Variant::BASELINE].map(run::<F>);
    assert_eq!(mayfly.tally.slow, 0, "{}", F::NAME);
    assert!(mayfly.log.windows > 0, "{}", F::NAME);
    let charged = |name| [&mayfly, &change_pte, &invalidate].map(|measured| measured.charged(name));
    // Which of the older two does more hangs on who is given the processor when.
    for name in ["entries_written", "tables_freed", "tlb_invalidations"] {
        let [ours, theirs, most] = charged(name);
        assert!(ours <= theirs.min(most), "{name}: {ours}, {theirs}, {most}");
    }
    let [ours, most] = [&mayfly, &invalidate].map(|measured| measured.tlbs.refills);
    assert!(0 < ours && ours <= most, "refills: {ours}, {most}");
    assert!(mayfly.charged("tables_kept") > 0 && invalidate.charged("tables_kept") == 0);
    // A page that is zapped is a fault only where a guest has a processor before the next page is.
    let fault_less =
        |mayfly: &Measured, invalidate: &Measured| mayfly.tally.faults < invalidate.tally.faults;
    let mut turns = 0;
    let (mut mayfly, mut invalidate) = (mayfly, invalidate);
    while !fault_less(&mayfly, &invalidate) {
        turns += 1;
        let [ours, most] = [&mayfly, &invalidate].map(|measured| measured.tally.faults);
        assert!(turns < TURNS, "{}: {ours} faults, {most} where pages are zapped", F::NAME);
        [mayfly, invalidate] = [Variant::BASELINE, INVALIDATE].map(run::<F>);
    }
}

#[test]
fn in_place_no_guest_faults_in_a_window_and_less_is_done_than_before() {
    compare::<Ept>();
}

#[test]
fn the_same_holds_where_entries_may_have_to_be_broken_before_they_are_made() {
    compare::<Arm<48>>();
}

#[test]
fn guests_find_out_that_their_vm_does_not_hear_of_other_frames() {
    // More than is moved, which has everything of it mapped anew.
    let shape = Shape { memory: Size::blocks(2), ..SHAPE };
    let tally = measure::<Ept>(DEAF, shape, 1).unwrap().tally;
    assert!(tally.mismatches > 0, "none of {} reads", tally.reads);
}

#[test]
fn what_faults_map_before_the_rounds_is_not_counted_with_them() {
    let Measured { tally, log, .. } = measure::<Ept>(Variant::BASELINE, SHAPE, 0).unwrap();
    assert!(tally.reads > 0);
    assert_eq!((tally.faults, tally.writes.len(), log.breaks.len()), (0, 0, 0));
}
