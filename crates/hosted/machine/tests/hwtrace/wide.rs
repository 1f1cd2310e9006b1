//! Lives of which it is less known in which order events came.

use std::collections::{BTreeSet, HashSet};
use std::mem::discriminant;

use mayfly_hwtrace::{Checker, Event, Options, Record, Rule};
use mayfly_stage2::{Arm, Ept};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};

use crate::drawn::{drawn, programs};
use crate::faults;
use crate::life::{Edit, Life, OPTIONS, life};
use crate::wider::{Width, broken, wide, wider, widths};

/// Traces in which each fault is looked for.
const TRIES: usize = 16;
/// In how many of those it is found, at least.
const FOUND: usize = 8;
/// Lives that are drawn, where `PROPTEST_CASES` says nothing.
const DRAWN: u32 = 128;
/// Smaller cases that are tried of one that fails, at most. Each is recorded anew.
const SHRINKS: u32 = 4096;

/// The records of a life in which one thing comes after another.
fn narrow(life: &Life) -> Vec<Record> {
    let events = life.iter().cloned().zip(0..);
    events.map(|((cpu, event), at)| Record { begin: 2 * at, end: 2 * at + 1, cpu, event }).collect()
}

/// The rules that a life breaks where its records are so much wider, one after another.
fn widened(life: &Life, widths: &[Width]) -> BTreeSet<Rule> {
    broken(&wider(&narrow(life), widths), OPTIONS, Checker::finish)
}

/// Each life in which a fault is planted, and the fault's name and rule.
fn faulty() -> Vec<(&'static str, Life, Rule)> {
    let recorded = Edit(life::<Arm<40>>());
    let planted = faults().map(|(name, plant, rule)| {
        let mut life = recorded.clone();
        plant(&mut life).expect(name);
        (name, life.0, rule)
    });
    planted.collect()
}

#[test]
fn a_life_that_breaks_no_rule_breaks_none_however_little_is_known_of_when_events_came() {
    let lives = [life::<Arm<40>>(), life::<Ept>()];
    let mut runner = runner(ProptestConfig::default().cases);
    let checked = runner.run(&(widths(), any::<bool>()), |(widths, arm)| {
        prop_assert_eq!(widened(&lives[usize::from(arm)], &widths), BTreeSet::new());
        Ok(())
    });
    checked.unwrap();
}

/// Nor with the tickets that it has.
#[test]
fn a_life_that_is_drawn_breaks_none_either() {
    let mut runner = runner(DRAWN);
    let checked = runner.run(&(programs(), widths(), any::<bool>()), |(program, widths, arm)| {
        let life = if arm { drawn::<Arm<40>>(&program) } else { drawn::<Ept>(&program) };
        let of = |records: &[Record]| broken(records, Options::default(), Checker::finish);
        let found = (of(&life), of(&wider(&life, &widths)));
        prop_assert_eq!(found, (BTreeSet::new(), BTreeSet::new()));
        Ok(())
    });
    checked.unwrap();
}

/// All but accessed and dirty marks, what is done to caches, and what is said to be missing.
#[test]
fn lives_that_are_drawn_have_seventeen_of_the_kinds_of_events() {
    let mut runner = TestRunner::deterministic();
    let mut kinds = HashSet::new();
    for _ in 0..8 {
        let program = programs().new_tree(&mut runner).unwrap().current();
        kinds.extend(drawn::<Arm<40>>(&program).iter().map(|one| discriminant(&one.event)));
    }
    assert_eq!(kinds.len(), 17);
    assert!(kinds.contains(&discriminant(&Event::Generation { generation: 0 })));
}

/// Faults that are one wherever a life has a place for them. Whether the others are depends on what else is there.
const ANYWHERE: [&str; 16] = [
    "a root is entered under a VMID that it did not take",
    "no barrier comes before the guest",
    "no barrier comes before the invalidation",
    "a table is written when it is free",
    "a root goes under a guest",
    "a frame that is free is mapped",
    "a frame that is free is used",
    "a frame that is free becomes a table",
    "a guest is given its own table",
    "a frame is given out twice",
    "a VMID is never taken",
    "a generation begins, and a VMID is not kept",
    "a table is filled when it is free",
    "a guest uses its TLB when it has been left",
    "a frame is freed, and stays mapped",
    "a page has another memory type at once",
];

#[test]
fn a_fault_is_found_in_each_life_that_is_drawn_and_has_a_place_for_it() {
    let mut runner = TestRunner::deterministic();
    let mut planted = BTreeSet::new();
    for _ in 0..12 {
        let program = programs().new_tree(&mut runner).unwrap().current();
        let life: Life =
            drawn::<Arm<40>>(&program).into_iter().map(|one| (one.cpu, one.event)).collect();
        for (name, plant, rule) in faults().filter(|(name, ..)| ANYWHERE.contains(name)) {
            let mut life = Edit(life.clone());
            if plant(&mut life).is_some() {
                let found = broken(&narrow(&life.0), Options::default(), Checker::finish);
                assert!(found.contains(&rule), "{name}: {found:?} in {program:?}");
                planted.insert(name);
            }
        }
    }
    assert_eq!(planted, BTreeSet::from(ANYWHERE));
}

#[test]
fn a_fault_breaks_no_other_rules_however_little_is_known_of_when_events_came() {
    let lives = faulty();
    let narrow: Vec<BTreeSet<Rule>> =
        lives.iter().map(|(_, life, _)| widened(life, &[(0, 0)])).collect();
    for ((name, _, rule), narrow) in lives.iter().zip(&narrow) {
        assert!(narrow.contains(rule), "{name}: {narrow:?}");
    }
    let mut runner = runner(ProptestConfig::default().cases);
    let checked = runner.run(&(widths(), 0..lives.len()), |(widths, fault)| {
        let (name, life, _) = &lives[fault];
        let found = widened(life, &widths);
        prop_assert!(
            found.is_subset(&narrow[fault]),
            "{}: {:?} in {:?}",
            name,
            found,
            narrow[fault]
        );
        Ok(())
    });
    checked.unwrap();
}

/// One record in 64 is wider, by less than 30 places.
#[test]
fn a_fault_is_found_where_of_a_few_events_it_is_less_known_when_they_came() {
    let mut runner = TestRunner::deterministic();
    let mut draw = || wide(64, 30).new_tree(&mut runner).unwrap().current();
    let widths: Vec<Vec<Width>> = (0..TRIES).map(|_| draw()).collect();
    let mut missed = Vec::new();
    for (name, life, rule) in faulty() {
        let found = widths.iter().filter(|widths| widened(&life, widths).contains(&rule)).count();
        if found < FOUND {
            missed.push((name, found));
        }
    }
    assert_eq!(missed, [], "found in so many of {TRIES}");
}

/// As many cases as `PROPTEST_CASES` says, others each time, or those of `PROPTEST_RNG_SEED`; what fails is tried again
/// each time. Where it says nothing, there are `cases`, always the same: a test that fails by chance tells nothing.
fn runner(cases: u32) -> TestRunner {
    let file = FileFailurePersistence::Direct("tests/proptest-regressions/hwtrace/wide.txt");
    let config = ProptestConfig {
        failure_persistence: Some(Box::new(file)),
        max_shrink_iters: SHRINKS,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        TestRunner::new(config)
    } else {
        let config = ProptestConfig { cases, ..config };
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    }
}
