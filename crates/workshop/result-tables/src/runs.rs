//! The records of several runs, from which figures are made.

use mayfly_record::{Backend, Record, ResultRow, units};
use serde_json::Value;

/// The fewest runs that make a figure.
pub(crate) const FEWEST: usize = 5;

/// The largest share of the processors' time that other processes may have on a host that is called quiet. It is not the load
/// average, because that contains the threads of the run before.
const QUIET: f64 = 0.1;

/// The records of several runs. Each run went through the same experiments.
pub struct Runs(Vec<Vec<Record>>);

/// Why records make no figures.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunsError {
    /// There are too few runs.
    #[error("there are {0} runs; a figure needs at least {FEWEST}")]
    TooFew(usize),
    /// A run ended early.
    #[error("a run is not complete: {0}")]
    Partial(String),
    /// The runs are of different builds or hosts.
    #[error("the runs are of different {what}: {one} and {other}")]
    Different {
        /// What is different.
        what: &'static str,
        /// As one record has it.
        one: String,
        /// As another has it.
        other: String,
    },
}

impl Runs {
    /// Records of runs; each run may be of several, one for each experiment.
    ///
    /// # Errors
    ///
    /// There are too few runs, one is not complete, or they are not of one build and host.
    pub fn new(runs: Vec<Vec<Record>>) -> Result<Self, RunsError> {
        if runs.len() < FEWEST {
            return Err(RunsError::TooFew(runs.len()));
        }
        let all = || runs.iter().flatten();
        if let Some(why) = all().find_map(|record| record.partial.clone()) {
            return Err(RunsError::Partial(why));
        }
        same("kernels", all().map(|record| record.host.kernel.clone()))?;
        same("processors", all().map(|of| format!("{} x {:?}", of.host.cpus, of.host.cpu)))?;
        same("builds", all().map(|record| format!("{:?}", record.host.build)))?;
        Ok(Self(runs))
    }

    /// The number of runs.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The host, its load while the runs went on, and how a figure is to be read: some sentences.
    pub fn told(&self) -> String {
        // Both the smallest and the largest are on one side with 2 to the power of 1 - n.
        let sure = 1.0 - 0.5_f64.powi(i32::try_from(self.count()).unwrap_or(i32::MAX) - 1);
        format!(
            "{} A figure is the median of the runs' medians. In brackets are the smallest and \
             the largest of these: the true median lies between them with a probability of {:.0} %. *n* is the number of \
             runs, times the samples of each run.",
            self.host(),
            100.0 * sure,
        )
    }

    /// The host, and its load while the runs went on.
    pub fn host(&self) -> String {
        let Some(first) = self.0.iter().flatten().next() else { return String::new() };
        let host = &first.host;
        let hz = host.hz.map_or_else(String::new, |hz| format!(" at HZ={hz}"));
        let kvm = host
            .kvm_module
            .as_ref()
            .map_or_else(String::new, |of| format!(", KVM from the module `{of}`"));
        let machine = if host.guest == Some(true) { " of a virtual machine" } else { "" };
        let conditions = || self.0.iter().flatten().filter_map(|record| record.conditions.as_ref());
        let stolen = range(conditions().filter_map(|of| of.stolen)).map_or(0.0, |[_, high]| high);
        let [_, others] = range(conditions().filter_map(|of| of.others)).unwrap_or_default();
        let loaded = if others > QUIET {
            "**Other programs used this host: times are longer than on a quiet one, and ratios less exact.** "
        } else {
            ""
        };
        format!(
            "{loaded}{} runs on {} CPUs{machine} ({}), Linux {}{hz}{kvm}. Other programs took at most {} of the \
             processors' time in a run, and other VMs at most {} (steal time).",
            self.count(),
            host.cpus,
            host.cpu.as_deref().unwrap_or(&host.arch),
            host.kernel,
            units::percent(others),
            units::percent(stolen),
        )
    }

    /// The row of a variant with these parameters, of each run that has it.
    pub(crate) fn rows(
        &self,
        experiment: &str,
        backend: Backend,
        variant: &str,
        params: &[(&str, Value)],
    ) -> Vec<&ResultRow> {
        let is_it = |row: &&ResultRow| {
            (&*row.experiment, row.backend, &*row.variant) == (experiment, backend, variant)
                && row.skipped.is_none()
                && params.iter().all(|(name, value)| row.params.get(*name) == Some(value))
        };
        self.0
            .iter()
            .filter_map(|run| run.iter().flat_map(|record| &record.results).find(is_it))
            .collect()
    }
}

/// Whether one fact is the same in all runs.
fn same(what: &'static str, mut facts: impl Iterator<Item = String>) -> Result<(), RunsError> {
    let Some(one) = facts.next() else { return Ok(()) };
    match facts.find(|other| *other != one) {
        Some(other) => Err(RunsError::Different { what, one, other }),
        None => Ok(()),
    }
}

fn range(numbers: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    numbers.fold(None, |range, number| {
        let [low, high] = range.unwrap_or([number, number]);
        Some([low.min(number), high.max(number)])
    })
}
