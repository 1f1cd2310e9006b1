//! How fast a merger is.

use std::time::Duration;

use mayfly_record::{ResultRow, Samples, Unit, nanoseconds};

use super::names::{FULL_SCAN, FULL_SCANS};

/// Passes over all memory, by round.
#[derive(Debug, Default)]
pub(super) struct Scans {
    pass: Samples,
    per_second: Vec<u64>,
}

impl Scans {
    /// So many passes were finished in this time.
    pub(super) fn note(&mut self, scans: u64, time: Duration) {
        if let Some(pass) = u32::try_from(scans).ok().and_then(|scans| time.checked_div(scans)) {
            self.pass.record(pass);
            self.pass.end_round();
        }
        let took = nanoseconds(time).max(1);
        self.per_second.push((scans * 1_000_000_000 + took / 2) / took);
    }

    pub(super) fn report(&self, row: ResultRow) -> ResultRow {
        row.metric(FULL_SCAN, &self.pass)
            .metric(FULL_SCANS, &Samples::of(Unit::Count, self.per_second.iter().copied()))
            .uncompared(FULL_SCANS)
    }
}
