//! Lives of which it is less known in which order events came.

use std::collections::BTreeSet;

use mayfly_hwtrace::{Checker, Record, Rule};
use mayfly_stage2::{Arm, Ept};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};

use crate::faults;
use crate::life::{Edit, Life, OPTIONS, life};

/// How much earlier than they are a record's tickets begin, and how much later they end.
type Width = (u32, u32);

/// Traces in which each fault is looked for.
const TRIES: usize = 16;
/// In how many of those it is found, at least.
const FOUND: usize = 8;

/// Widths for 64 events: of one in so many, by less than so many places, before, after or both.
fn wide(one_in: u32, far: u32) -> impl Strategy<Value = Vec<Width>> {
    let width = (0..one_in, 0..far, 0..far, 0..3_u8);
    let width = width.prop_map(|(which, before, after, side)| match (which, side) {
        (1.., _) => (0, 0),
        (0, 0) => (before, 0),
        (0, 1) => (0, after),
        (0, _) => (before, after),
    });
    prop::collection::vec(width, 64)
}

/// Any widths.
fn widths() -> impl Strategy<Value = Vec<Width>> {
    let far = prop::sample::select(vec![3_u32, 10, 30, 100, 1000]);
    (prop::sample::select(vec![1_u32, 3, 8, 20, 64]), far)
        .prop_flat_map(|(one_in, far)| wide(one_in, far))
}

/// The rules that a life breaks where its records are so much wider, one after another, from the first on again.
fn widened(life: &Life, widths: &[Width]) -> BTreeSet<Rule> {
    let events = life.iter().zip(widths.iter().cycle());
    // Begins before ends, of those that would be at once.
    let mut moments: Vec<(i64, bool, usize)> = Vec::new();
    for ((at, moment), (_, (before, after))) in (0..).zip(0_i64..).zip(events) {
        moments.push((moment - i64::from(*before), false, at));
        moments.push((moment + i64::from(*after), true, at));
    }
    moments.sort_unstable();
    let mut begins = vec![0; life.len()];
    let mut checker = Checker::new(OPTIONS);
    for (ticket, (_, is_end, at)) in (1u64..).zip(moments) {
        if is_end {
            let (cpu, event) = life[at].clone();
            checker.take(at as u64, &Record { begin: begins[at], end: ticket, cpu, event });
        } else {
            begins[at] = ticket;
        }
    }
    checker.finish().iter().map(|broken| broken.rule).collect()
}

/// Each life in which a fault is planted, and the fault's name and rule.
fn faulty() -> Vec<(&'static str, Life, Rule)> {
    let recorded = Edit(life::<Arm<40>>());
    let planted = faults().map(|(name, plant, rule)| {
        let mut life = recorded.clone();
        plant(&mut life);
        (name, life.0, rule)
    });
    planted.collect()
}

#[test]
fn a_life_that_breaks_no_rule_breaks_none_however_little_is_known_of_when_events_came() {
    let lives = [life::<Arm<40>>(), life::<Ept>()];
    let mut runner = runner();
    let checked = runner.run(&(widths(), any::<bool>()), |(widths, arm)| {
        prop_assert_eq!(widened(&lives[usize::from(arm)], &widths), BTreeSet::new());
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn a_fault_breaks_no_other_rules_however_little_is_known_of_when_events_came() {
    let lives = faulty();
    let narrow: Vec<BTreeSet<Rule>> =
        lives.iter().map(|(_, life, _)| widened(life, &[(0, 0)])).collect();
    for ((name, _, rule), narrow) in lives.iter().zip(&narrow) {
        assert!(narrow.contains(rule), "{name}: {narrow:?}");
    }
    let mut runner = runner();
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

/// As many cases as `PROPTEST_CASES` says, others each time; what fails is tried again each time. Where it says nothing,
/// the cases are always the same: rare widths may raise a false alarm still, and a test that fails by chance tells nothing.
fn runner() -> TestRunner {
    let file = FileFailurePersistence::Direct("tests/proptest-regressions/hwtrace/wide.txt");
    let config =
        ProptestConfig { failure_persistence: Some(Box::new(file)), ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        TestRunner::new(config)
    } else {
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    }
}
