//! What was measured of a pair.

use mayfly_record::nearest_rank;
use serde::{Deserialize, Serialize};

use crate::kernel::Taken;

/// What of a call grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All that it took, but for the time in which others had the processors.
    Time,
    /// The time in which the calling thread ran. A call that sleeps until a grace period is over sleeps for another time
    /// each time; its work is as regular as that of any other call.
    Work,
}

/// A number of what grows, and the samples that were taken there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// The number.
    pub n: u64,
    /// The law is not fitted to it, and has to predict it.
    pub held_out: bool,
    /// Nanoseconds that the call took on the clock, round by round.
    pub wall_ns: Vec<u64>,
    /// Nanoseconds of them in which the calling thread ran.
    pub cpu_ns: Vec<u64>,
    /// Nanoseconds in which it could have run, and others had the processors.
    pub queued_ns: Vec<u64>,
}

/// A number at which the call, or what it needs, failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The number.
    pub n: u64,
    /// What failed.
    pub why: String,
}

/// The points of a pair, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// In the order of their numbers.
    pub points: Vec<Point>,
    /// Those that could not be measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// The nearest-rank median; 0 of nothing.
pub(crate) fn median(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    nearest_rank(&samples, 500).unwrap_or(0)
}

impl Point {
    /// What each call took, without the time in which others had the processors: that is the load's, and not the call's. No
    /// call takes less than it runs: the processors may have been others' right before the call or after it.
    pub(crate) fn times(&self) -> Vec<u64> {
        let all = self.wall_ns.iter().zip(&self.cpu_ns).zip(&self.queued_ns);
        all.map(|((wall, cpu), queued)| wall.saturating_sub(*queued).max(*cpu.min(wall))).collect()
    }

    /// Its work: no more than all of the call took.
    fn works(&self) -> Vec<u64> {
        self.cpu_ns.iter().zip(&self.wall_ns).map(|(cpu, wall)| *cpu.min(wall)).collect()
    }

    /// The samples of one kind.
    pub(crate) fn of(&self, kind: Kind) -> Vec<u64> {
        match kind {
            Kind::Time => self.times(),
            Kind::Work => self.works(),
        }
    }

    /// The median of what a call took.
    pub fn time(&self) -> u64 {
        median(self.times())
    }

    /// The median of the time in which the thread slept.
    pub fn slept(&self) -> u64 {
        let all = self.times().into_iter().zip(&self.cpu_ns);
        median(all.map(|(time, cpu)| time.saturating_sub(*cpu)).collect())
    }

    /// Adds a sample.
    pub(crate) fn push(&mut self, taken: Taken) {
        self.wall_ns.push(taken.wall);
        self.cpu_ns.push(taken.cpu);
        self.queued_ns.push(taken.queued);
    }
}

impl Series {
    /// How many rounds all points have.
    pub fn rounds(&self) -> usize {
        self.points.iter().map(|point| point.wall_ns.len()).min().unwrap_or(0)
    }

    /// The first and the last number.
    pub fn range(&self) -> Option<(u64, u64)> {
        Some((self.points.first()?.n, self.points.last()?.n))
    }
}
