//! The plan of a run: the user's selection, checked before anything runs, and then run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use mayfly_record::{Backend, Description, Goal, Host, Limits, ResultRow};

use crate::alike::held_alike;
use crate::choice::BackendChoice;
use crate::course::Course;
use crate::experiment::{Experiment, Request, Variant};
use crate::needs::Needs;
use crate::params::Params;
use crate::passes::{Next, Repetition, joined};
use crate::progress::Progress;
use crate::undo::Undo;

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
    /// What the user wants beyond running everything once.
    pub goal: Goal,
}

/// Why a selection cannot be run. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No experiment has this name.
    #[error("no experiment is named '{name}'{}: accepted are {accepted}", meant(*.nearest))]
    UnknownExperiment {
        /// What was given.
        name: String,
        /// The one that is meant, probably.
        nearest: Option<&'static str>,
        /// The names there are.
        accepted: String,
    },
    /// No selected experiment has a variant of this name on a selected backend.
    #[error("no variant is named '{name}' here{}: accepted are {accepted}", meant(*.nearest))]
    UnknownVariant {
        /// What was given.
        name: String,
        /// The one that is meant, probably.
        nearest: Option<&'static str>,
        /// The names there are, by experiment if there are several.
        accepted: String,
    },
    /// No selected experiment reads this parameter.
    #[error("--{name} is not a parameter of {experiments}: leave it out")]
    UnusedParam {
        /// The parameter.
        name: &'static str,
        /// The selected experiments.
        experiments: String,
    },
}

/// A selection that can be run.
pub struct Plan<'a> {
    parts: Vec<Part<'a>>,
    params: Params,
    goal: Goal,
    host: &'a Host,
}

/// One experiment of a plan.
struct Part<'a> {
    experiment: &'a dyn Experiment,
    /// What runs.
    variants: Vec<&'static Variant>,
    /// What does not, and why.
    skipped: Vec<(&'static Variant, String)>,
    /// What of those that run on KVM does not, and why.
    left_out: Vec<String>,
    needs: Needs,
}

/// One experiment of a plan, for a caller that asks before the run.
#[derive(Debug)]
pub struct Planned<'a> {
    /// Its name.
    pub experiment: &'static str,
    /// What runs.
    pub variants: &'a [&'static Variant],
    /// What does not, and why.
    pub skipped: &'a [(&'static Variant, String)],
    /// What of those that run on KVM does not, and why.
    pub left_out: &'a [String],
    /// What it takes of the host.
    pub needs: &'a Needs,
}

impl<'a> Plan<'a> {
    /// Checks a selection among `available` experiments on this host.
    ///
    /// Variants on a KVM that cannot be opened, or that has no guest for this host's architecture, become skipped rows;
    /// and so do those for which there is not enough memory or address space.
    ///
    /// # Errors
    ///
    /// A name that nothing has, or a parameter that nothing reads.
    pub fn new(
        available: &[&'a dyn Experiment],
        selection: &Selection,
        host: &'a Host,
    ) -> Result<Self, Error> {
        Self::within(Limits::gather(), available, selection, host)
    }

    fn within(
        limits: Limits,
        available: &[&'a dyn Experiment],
        selection: &Selection,
        host: &'a Host,
    ) -> Result<Self, Error> {
        let experiments = select(available, &selection.experiments)?;
        check_variants(&experiments, selection)?;
        check_params(&experiments, &selection.params)?;
        let parts = experiments
            .into_iter()
            .map(|experiment| Part::new(experiment, selection, host, limits))
            .collect();
        Ok(Self { parts, params: selection.params.clone(), goal: selection.goal, host })
    }

    /// What it is about.
    pub fn describe(&self) -> impl Iterator<Item = Description> {
        self.parts.iter().map(|part| part.experiment.describe())
    }

    /// Each experiment, in the order in which they run.
    pub fn parts(&self) -> impl Iterator<Item = Planned<'_>> {
        self.parts.iter().map(|Part { experiment, variants, skipped, left_out, needs }| Planned {
            experiment: experiment.name(),
            variants,
            skipped,
            left_out,
            needs,
        })
    }

    /// What the user wants beyond running everything once.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// What going through all of it once takes.
    pub fn needs(&self) -> Needs {
        Needs::of_all(self.parts.iter().map(|part| &part.needs))
    }

    /// Runs all of it, one experiment after another. One that fails, or panics, is a failure of its own, and the others
    /// are run all the same.
    pub fn run(&self, course: &Course, progress: &mut dyn Progress) {
        let (begun, count) = (Instant::now(), self.parts.len());
        for (at, part) in self.parts.iter().enumerate() {
            let name = part.experiment.name();
            if !part.variants.is_empty() {
                course.begin(name);
                progress.experiment(name, at + 1, count, part.needs.time);
                let left = self.goal.time().saturating_sub(begun.elapsed());
                course.end(self.passes(part, share(left, &self.parts[at..]), course, progress));
                progress.finish();
            }
            course.add(part.skipped.iter().map(|(variant, why)| {
                ResultRow::new(name, variant.backend, variant.name).skipped(why)
            }));
        }
    }

    /// Goes through an experiment once, and then as often as is wanted, and as `share` lasts.
    fn passes(
        &self,
        part: &Part<'_>,
        share: Duration,
        course: &Course,
        progress: &mut dyn Progress,
    ) -> Result<(), String> {
        let (begun, experiment) = (Instant::now(), part.experiment);
        let mut rows = self.pass(part, 0, course, progress)?;
        course.keep(held_alike(&rows), None);
        if self.goal.is_once() {
            return Ok(());
        }
        let mut repetition = Repetition::after_first(experiment, &rows, self.goal, share, begun);
        let mut told = 0;
        for pass in 1.. {
            let Next::Pass(to_come) = repetition.next() else { break };
            if to_come >= told {
                progress.again(to_come, repetition.widest(), self.goal);
            }
            told = to_come;
            let done = self.pass(part, pass, course, progress);
            let failed = match done {
                Ok(more) => {
                    rows = joined(rows, more, experiment.levels());
                    repetition.passed(experiment, &rows);
                    None
                }
                Err(why) => Some(why),
            };
            course.keep(held_alike(&rows), Some(repetition.so_far(experiment, &rows)));
            if let Some(why) = failed {
                return Err(why);
            }
        }
        course.keep(held_alike(&rows), Some(repetition.so_far(experiment, &rows)));
        Ok(())
    }

    fn pass(
        &self,
        part: &Part<'_>,
        pass: u32,
        course: &Course,
        progress: &mut dyn Progress,
    ) -> Result<Vec<ResultRow>, String> {
        let request = Request {
            variants: &part.variants,
            params: &self.params,
            host: self.host,
            undo: &course.undo,
            pass,
        };
        // What a panic leaves half done are the experiment's own VMs, which are gone.
        match catch_unwind(AssertUnwindSafe(|| part.experiment.run(&request, progress))) {
            Ok(done) => done.map_err(|error| format!("{error:#}")),
            Err(panic) => Err(panicked(&*panic)),
        }
    }
}

/// What the first of `parts` may take of the time that is left, so that each has as much beyond a pass as it takes for one.
fn share(left: Duration, parts: &[Part<'_>]) -> Duration {
    let time = |part: &Part<'_>| part.needs.time.as_secs_f64();
    let all: f64 = parts.iter().map(time).sum();
    let share = if all > 0.0 { time(&parts[0]) / all } else { 1.0 };
    left.mul_f64(share)
}

impl<'a> Part<'a> {
    fn new(
        experiment: &'a dyn Experiment,
        selection: &Selection,
        host: &Host,
        limits: Limits,
    ) -> Self {
        let undo = Undo::default();
        let params = &selection.params;
        let needs = |variants: &[&'static Variant]| match variants {
            [] => Needs::default(),
            _ => experiment.needs(&Request { variants, params, host, undo: &undo, pass: 0 }),
        };
        let left_out = |variants: &[&'static Variant]| {
            let request = Request { variants, params, host, undo: &undo, pass: 0 };
            let mut left_out = match request.count_on(Backend::Kvm) {
                0 => Vec::new(),
                _ => experiment.left_out(&request),
            };
            left_out.dedup();
            left_out
        };
        let candidates: Vec<_> = candidates(experiment, selection.backend)
            .filter(|variant| selected(variant, &selection.variants))
            .collect();
        let (machine, kvm): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|variant| variant.backend == Backend::Machine);
        let no_room = |variants: &[&'static Variant]| {
            let Needs { memory, space, what_for, .. } = needs(variants);
            limits.why_not(memory, space, &what_for)
        };
        let no_kvm = experiment
            .why_not_on_kvm_of(&host.arch)
            .or_else(|| (!host.kvm).then(|| host.kvm_missing.clone().unwrap_or_default()))
            // Of VMs of several sizes, what runs on KVM leaves out those for which there is no room.
            .or_else(|| no_room(&kvm));
        let (mut variants, mut skipped) = (Vec::new(), Vec::new());
        let no_machine = no_room(&machine);
        for (of_backend, why_not) in [(machine, no_machine), (kvm, no_kvm)] {
            match why_not {
                None => variants.extend(of_backend),
                Some(why) => skipped.extend(of_backend.into_iter().map(|one| (one, why.clone()))),
            }
        }
        let (needs, left_out) = (needs(&variants), left_out(&variants));
        Self { experiment, variants, skipped, left_out, needs }
    }
}

/// What a panic said, in one line.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let first = said.and_then(|said| said.lines().next()).unwrap_or("it did not say why");
    format!("panicked: {first}")
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
        let names = || available.iter().map(|e| e.name());
        let (nearest, accepted) = (nearest(name, names()), list(names()));
        return Err(Error::UnknownExperiment { name: name.clone(), nearest, accepted });
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
            let of =
                |e: &&dyn Experiment| list(self::candidates(*e, selection.backend).map(|v| v.name));
            let accepted = match experiments {
                [one] => of(one),
                several => {
                    let each = several.iter().map(|e| format!("{} of {}", of(e), e.name()));
                    each.collect::<Vec<_>>().join("; ")
                }
            };
            let nearest = nearest(name, candidates().map(|v| v.name));
            Err(Error::UnknownVariant { name: name.clone(), nearest, accepted })
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

/// As like as two names have to be for one of them to be a slip of the other: clap's own measure for options.
const ALIKE: f64 = 0.7;

/// The name that is most like `name`, if one is.
fn nearest(name: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let likeness = names.map(|other| (strsim::jaro(name, other), other));
    let alike = likeness.filter(|(likeness, _)| *likeness > ALIKE);
    alike.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

fn meant(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean '{name}'?)"))
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
