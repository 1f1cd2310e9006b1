//! What was measured on a host.

use std::time::Duration;

use mayfly_kvm::{Pair, Verdict};
use mayfly_record::{Conditions, Host, ResultRow};

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
    /// How the host was meanwhile, where that is known.
    pub conditions: Option<Conditions>,
}

/// A share of the processors' time: if others took more, times are longer than on a quiet host.
const LOADED: f64 = 0.2;

/// The length of a tick; where the host does not tell, the longest that is usual.
pub(crate) fn tick_of(host: &Host) -> Duration {
    Duration::from_secs(1) / host.hz.filter(|hz| *hz > 0).unwrap_or(100)
}

impl Examination {
    /// The length of a tick.
    pub fn tick(&self) -> Duration {
        tick_of(&self.host)
    }

    /// The pairs of which the second call waits, and how long.
    pub fn waiting(&self) -> impl Iterator<Item = (&Pair, Duration)> {
        let tick = self.tick();
        self.pairs.iter().filter_map(move |pair| match pair.verdict(tick) {
            Verdict::Waits(time) => Some((pair, time)),
            _ => None,
        })
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

    /// What share of the processors' time other programs took, and other VMs beside this host: where one of them is so large
    /// that it shows in the times.
    pub fn load(&self) -> Option<[f64; 2]> {
        let Conditions { others, stolen, .. } = self.conditions.as_ref()?;
        let shares = [others, stolen].map(|share| share.unwrap_or(0.0));
        shares.iter().any(|share| *share >= LOADED).then_some(shares)
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
