//! A model, explored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::model::Builder;

/// Goes through every execution of `model`, with as many preemptions as `builder` says, or 3; and says how many they were.
pub(crate) fn explore(mut builder: Builder, model: impl Fn() + Send + Sync + 'static) {
    builder.max_branches = 100_000;
    builder.preemption_bound.get_or_insert(3);
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} executions", executions.load(Ordering::Relaxed));
}
