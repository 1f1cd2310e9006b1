//! Going through the probes, and what they gave.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_kvm::{Kvm, Pair, Verdict};
use mayfly_record::{Backend, Host, Record, ResultRow};

use crate::finding::Finding;
use crate::{NAME, judge, probe};

/// What was measured on a host.
#[derive(Clone, Debug)]
pub struct Examination {
    /// The host.
    pub host: Host,
    /// What was measured of pairs of calls.
    pub pairs: Vec<Pair>,
    /// What was measured, a row for each kind of thing: their metrics are in nanoseconds.
    pub rows: Vec<ResultRow>,
    /// How long it took.
    pub took: Duration,
}

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

/// Until when all has to be there: what a call that never returns costs.
const LONGEST: Duration = Duration::from_millis(9500);

/// Examines `host`, by its `kvm`: ten seconds at the most.
pub fn examine(kvm: Kvm, host: Host) -> Examination {
    let tick = tick_of(&host);
    examine_with(probe::all(kvm, tick), host, LONGEST)
}

/// Goes through `probes` on a thread of its own, and waits for it as long as `longest`. What has not come back by then, or
/// has failed inside, is a row that says so.
pub fn examine_with(probes: Vec<Probe>, host: Host, longest: Duration) -> Examination {
    let begun = Instant::now();
    let names: Vec<&'static str> = probes.iter().map(|probe| probe.name).collect();
    let mut found = Examination { host, pairs: Vec::new(), rows: Vec::new(), took: longest };
    let (tell, told) = channel();
    // A part of the time is left for what is under way when no more is begun.
    let until = begun + longest.mul_f64(0.8);
    let thread = thread::Builder::new().name("probes".into()).spawn(move || {
        for Probe { run, .. } in probes {
            let given = catch_unwind(AssertUnwindSafe(|| run(until)));
            if tell.send(given.ok()).is_err() {
                return;
            }
        }
    });
    let refused = thread.err().map(|error| format!("no thread for it: {error}"));
    for name in names {
        let left = longest.saturating_sub(begun.elapsed());
        let missing = match told.recv_timeout(left) {
            Ok(Some(given)) => {
                found.pairs.extend(given.pairs);
                found.rows.extend(given.rows);
                continue;
            }
            Ok(None) => "it failed inside: this is a defect of Mayfly".to_owned(),
            Err(RecvTimeoutError::Timeout) => {
                format!("a call has not returned after {:.0} s", longest.as_secs_f64())
            }
            Err(RecvTimeoutError::Disconnected) => refused.clone().unwrap_or_default(),
        };
        found.rows.push(row(name).skipped(missing));
    }
    found.took = begun.elapsed();
    found
}

/// A row of an examination.
pub(crate) fn row(variant: &str) -> ResultRow {
    ResultRow::new(NAME, Backend::Kvm, variant)
}

/// The row of [`Examination::record`] that has [`COUNTERS`].
pub const COUNTED: &str = "found";

/// What is counted of every examination: findings, calls that wait for another, pairs that cannot be told, pairs for which
/// there was no time, and what failed.
pub const COUNTERS: [&str; 5] = ["findings", "waits", "unclear", "unmeasured", "failed"];

/// The length of a tick; where the host does not tell, the longest that is usual.
pub(crate) fn tick_of(host: &Host) -> Duration {
    Duration::from_secs(1) / host.hz.filter(|hz| *hz > 0).unwrap_or(100)
}

impl Examination {
    /// The length of a tick.
    pub fn tick(&self) -> Duration {
        tick_of(&self.host)
    }

    /// What it comes to, the most important first.
    pub fn findings(&self) -> Vec<Finding> {
        judge::findings(self)
    }

    /// The pairs of which the second call waits, and how long.
    pub fn waiting(&self) -> impl Iterator<Item = (&Pair, Duration)> {
        let tick = self.tick();
        self.pairs.iter().filter_map(move |pair| match pair.verdict(tick) {
            Verdict::Waits(time) => Some((pair, time)),
            _ => None,
        })
    }

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
            let [at_once, later] = probe::names_of(pair.call);
            let with = before
                .metric(&at_once, &probe::samples(&pair.at_once))
                .metric(&later, &probe::samples(&pair.later));
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

    /// Pairs that were measured and cannot be told.
    pub(crate) fn unclear(&self) -> usize {
        let tick = self.tick();
        let is_unclear = |pair: &&Pair| matches!(pair.verdict(tick), Verdict::Unclear(_));
        self.pairs.iter().filter(is_unclear).count()
    }

    /// Pairs for which there was too little time.
    pub(crate) fn too_few(&self) -> usize {
        let tick = self.tick();
        let is_one = |pair: &&Pair| pair.error.is_none() && pair.verdict(tick) == Verdict::Unknown;
        self.pairs.iter().filter(is_one).count()
    }

    /// Whether anything could be measured.
    pub fn has_measured(&self) -> bool {
        self.pairs.iter().any(|pair| !pair.at_once.is_empty())
            || self.rows.iter().any(|row| !row.metrics.is_empty())
    }

    /// What could not be measured, and why: each in a line.
    pub fn failed(&self) -> Vec<String> {
        let pairs = self.pairs.iter().filter_map(|pair| {
            let error = pair.error.as_ref()?;
            Some(format!("{} right after {}: {error}", pair.call, pair.after))
        });
        let rows = self
            .rows
            .iter()
            .filter_map(|row| Some(format!("{}: {}", row.variant, row.skipped.as_ref()?)));
        pairs.chain(rows).collect()
    }
}
