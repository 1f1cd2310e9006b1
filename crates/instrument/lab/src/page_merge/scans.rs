//! How fast a merger is.

use std::time::Duration;

use mayfly_record::{ResultRow, Samples, Unit, nanoseconds};

use super::names::{FULL_SCAN, FULL_SCANS};

/// Passes over all memory, by round: how many were finished, in which time.
#[derive(Debug, Default)]
pub(super) struct Scans(Vec<(u64, Duration)>);

impl Scans {
    /// So many passes were finished in this time.
    pub(super) fn note(&mut self, scans: u64, time: Duration) {
        self.0.push((scans, time));
    }

    pub(super) fn report<'a>(row: ResultRow, all: impl IntoIterator<Item = &'a Self>) -> ResultRow {
        let (mut pass, mut per_second) = (Samples::default(), Samples::of(Unit::Count, []));
        for &(scans, time) in all.into_iter().flat_map(|scans| &scans.0) {
            let each = u32::try_from(scans).ok().and_then(|scans| time.checked_div(scans));
            if let Some(each) = each {
                pass.record(each);
            }
            let took = nanoseconds(time).max(1);
            per_second.record_ns((scans * 1_000_000_000 + took / 2) / took);
            pass.end_round();
            per_second.end_round();
        }
        row.metric(FULL_SCAN, &pass).metric(FULL_SCANS, &per_second).uncompared(FULL_SCANS)
    }
}
