//! Lives of which it is less known in which order events came.

use std::collections::BTreeSet;

use mayfly_hwtrace::{Checker, Record, Rule};
use mayfly_stage2::{Arm, Ept};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::life::{Life, OPTIONS, life};

/// How much earlier than they are a record's tickets begin, and how much later they end.
type Width = (u32, u32);

/// Widths for so many events: of all by little, or of few by more.
fn widths() -> impl Strategy<Value = Vec<Width>> {
    let wide = |one_in: u32, far: u32| {
        let width = (0..one_in, 0..far, 0..far);
        let width = width
            .prop_map(|(which, before, after)| if which == 0 { (before, after) } else { (0, 0) });
        prop::collection::vec(width, 64)
    };
    prop_oneof![wide(1, 3), wide(64, 30)]
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

#[test]
fn a_life_that_breaks_no_rule_breaks_none_where_it_is_less_known_when_events_came() {
    let lives = [life::<Arm<40>>(), life::<Ept>()];
    let config =
        ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, random);
    let checked = runner.run(&(widths(), any::<bool>()), |(widths, arm)| {
        prop_assert_eq!(widened(&lives[usize::from(arm)], &widths), BTreeSet::new());
        Ok(())
    });
    checked.unwrap();
}
