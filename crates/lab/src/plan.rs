//! What to run: the user's selection, checked before anything runs.

use mayfly_record::{Backend, Description, Host, ResultRow};

use crate::choice::BackendChoice;
use crate::experiment::{Experiment, Request, Variant};
use crate::params::Params;
use crate::progress::Progress;

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Names of experiments; none means all.
    pub experiments: Vec<String>,
    /// Where to run them.
    pub backend: BackendChoice,
    /// Names of variants; none means all.
    pub variants: Vec<String>,
    /// Parameters that were set.
    pub params: Params,
}

/// Why a selection cannot be run, or a run did not come to its end. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No experiment has this name.
    #[error("no experiment is named '{name}': accepted are {accepted}")]
    UnknownExperiment {
        /// What was given.
        name: String,
        /// The names there are.
        accepted: String,
    },
    /// No selected experiment has a variant of this name on a selected backend.
    #[error("no variant is named '{name}' here: accepted are {accepted}")]
    UnknownVariant {
        /// What was given.
        name: String,
        /// The names there are.
        accepted: String,
    },
    /// No selected experiment reads this parameter.
    #[error("--{name} means nothing to {experiments}")]
    UnusedParam {
        /// The parameter.
        name: &'static str,
        /// The selected experiments.
        experiments: String,
    },
    /// KVM was asked for by name, and cannot be opened.
    #[error("{0}")]
    NoKvm(String),
    /// An experiment failed.
    #[error("{experiment}: {source:#}")]
    Failed {
        /// Which.
        experiment: &'static str,
        /// What happened.
        source: anyhow::Error,
    },
}

impl Error {
    /// Whether the user asked for something that does not exist, as against something that failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::UnknownExperiment { .. }
            | Self::UnknownVariant { .. }
            | Self::UnusedParam { .. } => true,
            Self::NoKvm(_) | Self::Failed { .. } => false,
        }
    }
}

/// A selection that can be run.
pub struct Plan<'a> {
    parts: Vec<Part<'a>>,
    params: Params,
    host: &'a Host,
}

/// One experiment of a plan.
struct Part<'a> {
    experiment: &'a dyn Experiment,
    /// What runs.
    variants: Vec<&'static Variant>,
    /// What would run if there were a KVM for its guests.
    without_kvm: Vec<&'static Variant>,
    /// Why there is none.
    why_not: Option<String>,
}

impl<'a> Plan<'a> {
    /// Checks a selection among `available` experiments on this host.
    ///
    /// With [`BackendChoice::Auto`], variants on a KVM that cannot be opened become skipped rows; with any choice, so
    /// do those that have no guest for this host's architecture.
    ///
    /// # Errors
    ///
    /// A name that nothing has, a parameter that nothing reads, or KVM asked for where there is none.
    pub fn new(
        available: &[&'a dyn Experiment],
        selection: &Selection,
        host: &'a Host,
    ) -> Result<Self, Error> {
        let experiments = select(available, &selection.experiments)?;
        check_variants(&experiments, selection)?;
        check_params(&experiments, &selection.params)?;
        if let (BackendChoice::Only(Backend::Kvm), Some(why)) =
            (selection.backend, &host.kvm_missing)
        {
            return Err(Error::NoKvm(why.clone()));
        }
        let parts = experiments
            .into_iter()
            .map(|experiment| {
                let why_not = experiment
                    .why_not_on_kvm_of(&host.arch)
                    .or_else(|| (!host.kvm).then(|| host.kvm_missing.clone().unwrap_or_default()));
                let runs_here =
                    |variant: &&Variant| variant.backend != Backend::Kvm || why_not.is_none();
                let (variants, without_kvm) = candidates(experiment, selection.backend)
                    .filter(|v| selected(v, &selection.variants))
                    .partition(runs_here);
                Part { experiment, variants, without_kvm, why_not }
            })
            .collect();
        Ok(Self { parts, params: selection.params.clone(), host })
    }

    /// What it is about.
    pub fn describe(&self) -> impl Iterator<Item = Description> {
        self.parts.iter().map(|part| part.experiment.describe())
    }

    /// Runs all of it, one experiment after another.
    ///
    /// # Errors
    ///
    /// The first experiment that fails ends the run.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<Vec<ResultRow>, Error> {
        let mut rows = Vec::new();
        for Part { experiment, variants, without_kvm, why_not } in &self.parts {
            if !variants.is_empty() {
                let request = Request { variants, params: &self.params, host: self.host };
                let result = experiment.run(&request, progress);
                rows.extend(
                    result.map_err(|source| Error::Failed {
                        experiment: experiment.name(),
                        source,
                    })?,
                );
            }
            let why = why_not.as_deref().unwrap_or_default();
            rows.extend(without_kvm.iter().map(|variant| {
                ResultRow::new(experiment.name(), variant.backend, variant.name).skipped(why)
            }));
        }
        Ok(rows)
    }
}

/// The experiments of these names, in the order of `available`; no names mean all of them.
///
/// # Errors
///
/// [`Error::UnknownExperiment`] for the first name that none of them has.
pub fn select<'a>(
    available: &[&'a dyn Experiment],
    names: &[String],
) -> Result<Vec<&'a dyn Experiment>, Error> {
    let unknown = names.iter().find(|&name| available.iter().all(|e| e.name() != name));
    if let Some(name) = unknown {
        let accepted = list(available.iter().map(|e| e.name()));
        return Err(Error::UnknownExperiment { name: name.clone(), accepted });
    }
    let chosen =
        |e: &&&dyn Experiment| names.is_empty() || names.iter().any(|name| name == e.name());
    Ok(available.iter().filter(chosen).copied().collect())
}

/// The variants of an experiment on the chosen backends.
fn candidates(
    experiment: &dyn Experiment,
    backend: BackendChoice,
) -> impl Iterator<Item = &'static Variant> {
    experiment.variants().iter().filter(move |v| backend.includes(v.backend))
}

fn selected(variant: &Variant, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| name == variant.name)
}

/// Each named variant must belong to at least one of the experiments.
fn check_variants(experiments: &[&dyn Experiment], selection: &Selection) -> Result<(), Error> {
    let candidates = || experiments.iter().flat_map(|e| candidates(*e, selection.backend));
    match selection.variants.iter().find(|&name| candidates().all(|v| v.name != name)) {
        None => Ok(()),
        Some(name) => {
            let accepted = list(candidates().map(|v| v.name));
            Err(Error::UnknownVariant { name: name.clone(), accepted })
        }
    }
}

/// Each parameter that was set must be read by at least one of the experiments.
fn check_params(experiments: &[&dyn Experiment], params: &Params) -> Result<(), Error> {
    let read = |name: &str| experiments.iter().any(|e| e.params().iter().any(|p| p.name == name));
    match params.named().find(|name| !read(name)) {
        None => Ok(()),
        Some(name) => Err(Error::UnusedParam {
            name,
            experiments: list(experiments.iter().map(|e| e.name())),
        }),
    }
}

/// Names joined by commas, each once.
fn list(names: impl Iterator<Item = &'static str>) -> String {
    let mut unique: Vec<&str> = Vec::new();
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    unique.join(", ")
}

#[cfg(test)]
mod tests;
