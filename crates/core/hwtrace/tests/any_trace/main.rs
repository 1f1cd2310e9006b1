//! Any trace, also of what no hypervisor does, and of which it is less known in which order events came.
//!
//! The order that a trace is drawn in is one of those that its tickets allow when they are wider. So a rule that the wide
//! trace breaks, whatever the order, the narrow one breaks as well.

#[path = "../common/wider.rs"]
mod wider;
mod world;

use std::collections::BTreeSet;

use mayfly_hwtrace::{Checker, Options, Record, Rule};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestError, TestRng, TestRunner};

use wider::{broken, wider, widths};
use world::{families, records, steps};

/// Traces that are drawn, where `PROPTEST_CASES` says nothing.
const DRAWN: u32 = 2000;

fn rules(records: &[Record], caches_maintained: bool) -> BTreeSet<Rule> {
    broken(records, Options { caches_maintained }, Checker::finish)
}

#[test]
fn any_trace_breaks_no_more_rules_where_it_is_less_known_in_which_order_events_came() {
    let drawn = (families(), steps(), widths(), any::<bool>());
    let checked = runner().run(&drawn, |(family, steps, widths, caches)| {
        let narrow = records(family, &steps);
        let wide = wider(&narrow, &widths);
        let found = rules(&wide, caches);
        if !found.is_empty() {
            let known = rules(&narrow, caches);
            let text = || wide.iter().map(Record::to_string).collect::<Vec<_>>().join("\n");
            prop_assert!(
                // Of a table that two entries lead to, the checker follows one.
                found.is_subset(&known) || known.contains(&Rule::TableTwice),
                "{:?} in {:?}:\n{}",
                found,
                known,
                text()
            );
        }
        Ok(())
    });
    // What is drawn says less than the trace that came of it.
    if let Err(TestError::Fail(reason, _)) = &checked {
        panic!("{reason}");
    }
    checked.unwrap();
}

/// Every rule is broken by some of them, and some break none: otherwise the test above says little.
#[test]
fn traces_that_are_drawn_break_each_rule_and_some_break_none() {
    let mut runner = TestRunner::deterministic();
    let drawn = (families(), steps(), any::<bool>());
    let (mut all, mut unbroken) = (BTreeSet::new(), 0);
    for _ in 0..400 {
        let (family, steps, caches) = drawn.new_tree(&mut runner).unwrap().current();
        let broken = rules(&records(family, &steps), caches);
        unbroken += u32::from(broken.is_empty());
        all.extend(broken);
    }
    assert_eq!(all.len(), Rule::ALL.len(), "{all:?}");
    assert!(unbroken > 40, "{unbroken}");
}

/// As many cases as `PROPTEST_CASES` says, others each time; what fails is tried again each time. Where it says nothing,
/// they are always the same: a test that fails by chance tells nothing.
fn runner() -> TestRunner {
    let file = FileFailurePersistence::Direct("tests/proptest-regressions/any_trace.txt");
    let config = ProptestConfig {
        failure_persistence: Some(Box::new(file)),
        max_shrink_iters: 1 << 16,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        TestRunner::new(config)
    } else {
        let config = ProptestConfig { cases: DRAWN, ..config };
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    }
}
