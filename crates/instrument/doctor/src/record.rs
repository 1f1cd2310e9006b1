//! An examination as a record, for bounds to be held against.

use mayfly_record::{Record, ResultRow};

use crate::examination::Examination;
use crate::row::{names_of, row, samples};

/// The row of [`Examination::record`] that has [`COUNTERS`].
pub const COUNTED: &str = "found";

/// What is counted of every examination: findings, calls that wait for another, pairs that cannot be told, pairs for which
/// there was no time, and what failed.
pub const COUNTERS: [&str; 5] = ["findings", "waits", "unclear", "unmeasured", "failed"];

impl Examination {
    /// Everything as a record, for bounds to be held against: a row for each first call, with the second calls as metrics
    /// (`memslot_add` right after it, `memslot_add_later` a while after), the other rows, and one with what was found, as
    /// counters.
    pub fn record(&self) -> Record {
        let rows = self.pair_rows().into_iter().chain(self.rows.clone());
        Record::new(self.host.clone(), rows.chain([self.counts()]).collect())
    }

    fn pair_rows(&self) -> Vec<ResultRow> {
        let mut rows: Vec<ResultRow> = Vec::new();
        for pair in &self.pairs {
            let name = pair.after.name();
            let at = rows.iter().position(|row| row.variant == name);
            let before = at.map_or_else(|| row(name), |at| rows.swap_remove(at));
            let [at_once, later] = names_of(pair.call);
            let with = before
                .metric(&at_once, &samples(&pair.at_once))
                .metric(&later, &samples(&pair.later));
            rows.push(with);
        }
        rows
    }

    fn counts(&self) -> ResultRow {
        let counts = [
            self.findings().len(),
            self.waiting().count(),
            self.unclear(),
            self.too_few(),
            self.failed().len(),
        ];
        let named = COUNTERS.into_iter().zip(counts);
        named.fold(row(COUNTED), |row, (name, count)| row.counter(name, count as u64))
    }
}
