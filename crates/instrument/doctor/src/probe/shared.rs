//! What a probe is, what it is given, and what it gives.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mayfly_kvm::{Error, Kvm, Pair, Waits};
use mayfly_record::ResultRow;

use crate::row::row;

/// What one probe gives.
#[derive(Clone, Debug, Default)]
pub struct Yield {
    /// Pairs of calls.
    pub pairs: Vec<Pair>,
    /// Anything else. A row that says why it was skipped is a call that failed.
    pub rows: Vec<ResultRow>,
}

/// Something that is measured.
pub struct Probe {
    /// The name of its row, should it give none.
    pub name: &'static str,
    /// Measures. Begins nothing more after the moment that it is given.
    pub run: Box<dyn FnOnce(Instant) -> Yield + Send>,
}

/// What probes have in common.
pub(super) struct Shared {
    pub(super) kvm: Arc<Kvm>,
    pub(super) tick: Duration,
    /// What the first of them has found out, for the builder.
    pub(super) waits: Arc<OnceLock<Waits>>,
}

/// The row `name` with what `measure` adds to it; or with the call that failed.
pub(super) fn measured(
    name: &str,
    measure: impl FnOnce(ResultRow) -> Result<ResultRow, Error>,
) -> ResultRow {
    measure(row(name)).unwrap_or_else(|error| row(name).skipped(error.to_string()))
}
