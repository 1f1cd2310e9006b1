//! The beginning of what hardware sees of a storm, of which it is then less known in which order events came.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use mayfly_hwtrace::{Options, Record, Rule};
use mayfly_machine::Sink;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::wider::{broken, wider, widths};

/// Records of a cut, of two tickets each: some times as many as the checker has wait before it takes one.
const RECORDS: usize = 1 << 15;
/// Widths that are tried, unless `PROPTEST_CASES` says how many.
const CASES: u32 = 8;

/// The first records, by their second tickets: whatever is written down late is among them.
#[derive(Clone, Default)]
pub(crate) struct Cut(Arc<Mutex<Vec<Record>>>);

impl Cut {
    /// What keeps them, and hands all of them on.
    pub(crate) fn before(&self, mut sink: Sink) -> Sink {
        let kept = Arc::clone(&self.0);
        Box::new(move |record| {
            if record.end < 2 * RECORDS as u64 {
                kept.lock().unwrap().push(record.clone());
            }
            sink(record)
        })
    }

    /// Fails where an order that is less known raises an alarm that there was none of.
    pub(crate) fn check_wider(&self, options: Options) {
        let mut records = std::mem::take(&mut *self.0.lock().unwrap());
        assert!(records.len() > RECORDS / 2, "{} records", records.len());
        records.sort_unstable_by_key(|record| record.end);
        let none = BTreeSet::<Rule>::new();
        assert_eq!(broken(&records, options, |checker| checker.found()), none);
        let asked = std::env::var("PROPTEST_CASES").ok().and_then(|asked| asked.parse().ok());
        let config = ProptestConfig {
            cases: asked.unwrap_or(CASES),
            failure_persistence: None,
            // Each takes as long as the first, and tells no more.
            max_shrink_iters: 0,
            ..ProptestConfig::default()
        };
        let checked = TestRunner::new(config).run(&widths(), |widths| {
            prop_assert_eq!(
                broken(&wider(&records, &widths), options, |checker| checker.found()),
                none.clone()
            );
            Ok(())
        });
        checked.unwrap();
    }
}
