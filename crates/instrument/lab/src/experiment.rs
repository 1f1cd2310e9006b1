//! What an experiment is.
//!
//! This file has the trait that each experiment implements. The types in its signatures are files of their own below
//! `experiment/`, and import nothing of this file.

mod metric;
mod param;
mod request;
mod variant;

use mayfly_record::{Description, Host, MetricDescription, ResultRow};

use crate::answers::Answer;
use crate::needs::Needs;
use crate::progress::Progress;
use crate::work;
pub use metric::Metric;
pub use param::Param;
pub use request::Request;
pub use variant::Variant;

/// The same work under several variants, timed.
pub trait Experiment: Sync {
    /// The name on the command line and in records: lower case, words joined by dashes.
    fn name(&self) -> &'static str;

    /// What it measures, in one line.
    fn summary(&self) -> &'static str;

    /// What it measures and which problem it comes from: a few paragraphs, lines of at most 80 columns.
    fn about(&self) -> &'static str;

    /// What it can run, in the order in which reports show it.
    fn variants(&self) -> &'static [Variant];

    /// What it measures alone, in the order in which reports show it.
    fn metrics(&self) -> &'static [Metric];

    /// All that it measures: its own, and what every experiment has of the CPU time of its threads.
    fn all_metrics(&self) -> Vec<&'static Metric> {
        self.metrics().iter().chain(&work::METRICS).collect()
    }

    /// The names of the metrics that a short report shows. If there are none, it shows all metrics. CPU time is among them
    /// if it answers whether there is less work, or whether the work has moved to another thread.
    fn headlines(&self) -> &'static [&'static str] {
        &[]
    }

    /// Counters that are no totals, beside those that begin with `peak_`. Of two passes the larger value counts, and not the
    /// sum.
    fn levels(&self) -> &'static [&'static str] {
        &[]
    }

    /// What `rows`, which this experiment has made, mean to the user.
    fn answer(&self, _rows: &[ResultRow], _host: &Host) -> Answer {
        Answer::default()
    }

    /// What a record says of this experiment, for a program that shows its rows and does not know it.
    fn describe(&self) -> Description {
        let headlines = self.headlines();
        let metric = |metric: &Metric| MetricDescription {
            name: metric.name.to_owned(),
            summary: metric.summary.to_owned(),
            headline: headlines.contains(&metric.name),
        };
        Description {
            name: self.name().to_owned(),
            summary: self.summary().to_owned(),
            metrics: self.all_metrics().into_iter().map(metric).collect(),
            ..Description::default()
        }
    }

    /// The parameters it reads.
    fn params(&self) -> &'static [Param];

    /// Why its variants on KVM have no guest for an architecture (as `uname -m` names it), if they have none.
    fn why_not_on_kvm_of(&self, arch: &str) -> Option<String> {
        (!matches!(arch, "x86_64" | "aarch64")).then(|| {
            format!("the guests for KVM are for x86-64 and arm64, and this host is {arch}")
        })
    }

    /// What running the requested variants takes of the host.
    fn needs(&self, request: &Request<'_>) -> Needs;

    /// Those of its metrics, by name, that count things; all others are times, in nanoseconds.
    fn counts(&self) -> &'static [&'static str] {
        &[]
    }

    /// The parts of the requested variants on KVM for which the cgroup or the process's limits leave no room now: a reason
    /// for each.
    fn left_out(&self, _request: &Request<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Runs the requested variants. Every row says which parameters it ran with; those that differ between
    /// the rows of one backend are what reports group by.
    ///
    /// The experiment gets all variants at once, so that it can take turns between them. A drift of the host during a run
    /// then affects all variants alike.
    ///
    /// # Errors
    ///
    /// The experiment cannot run at all. A variant that cannot run here is no error, but a skipped row.
    fn run(
        &self,
        request: &Request<'_>,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Vec<ResultRow>>;
}
