//! `mayfly list`.

use std::fmt;

use mayfly_lab::{Experiment, Variant, experiments, select};

use crate::args::List;
use crate::failure::Failure;
use crate::output::Stream;

/// Prints the experiments: each with its variants, or all about those that are named.
pub(crate) fn list(options: &List) -> Result<(), Failure> {
    let detailed = !options.experiments.is_empty();
    let colour = Stream::Out.colour();
    let sections: Vec<String> = select(experiments(), &options.experiments)?
        .into_iter()
        .map(|experiment| Section { experiment, detailed, colour }.to_string())
        .collect();
    Stream::Out.write(&sections.join("\n"))
}

/// What is told of one experiment.
struct Section<'a> {
    experiment: &'a dyn Experiment,
    detailed: bool,
    colour: bool,
}

impl fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { experiment, detailed, colour } = *self;
        let name = console::style(experiment.name()).bold().force_styling(colour);
        writeln!(f, "{name}: {}", experiment.summary())?;
        if detailed {
            writeln!(f, "\n{}\n\nVariants:", experiment.about().trim())?;
        }
        table(f, experiment.variants(), |Variant { backend, name, summary }| {
            (format!("{backend:8} {name}"), (*summary).to_owned())
        })?;
        if !detailed {
            return Ok(());
        }
        writeln!(f, "\nMetrics:")?;
        table(f, &experiment.all_metrics(), |m| (m.name.to_owned(), m.summary.to_owned()))?;
        writeln!(f, "\nParameters:")?;
        table(f, experiment.params(), |param| {
            (format!("--{}", param.name), format!("{} [default: {}]", param.summary, param.default))
        })
    }
}

/// Writes indented lines of a name and what it means, the meanings one below the other.
fn table<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    line: impl FnMut(&T) -> (String, String),
) -> fmt::Result {
    let lines: Vec<_> = items.iter().map(line).collect();
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().try_for_each(|(name, meaning)| writeln!(f, "  {name:width$}  {meaning}"))
}

#[cfg(test)]
mod tests {
    use mayfly_lab::{Metric, Needs, Param, Progress, Request};
    use mayfly_record::{Backend, ResultRow};

    use super::*;

    struct Dummy;

    impl Experiment for Dummy {
        fn name(&self) -> &'static str {
            "dummy"
        }
        fn summary(&self) -> &'static str {
            "what nothing costs"
        }
        fn about(&self) -> &'static str {
            "Nothing was ever\nmeasured.\n"
        }
        fn variants(&self) -> &'static [Variant] {
            &[
                Variant { backend: Backend::Machine, name: "mayfly", summary: "at once" },
                Variant { backend: Backend::Kvm, name: "kernel", summary: "as it is" },
            ]
        }
        fn metrics(&self) -> &'static [Metric] {
            &[Metric { name: "total", summary: "all of it" }]
        }
        fn params(&self) -> &'static [Param] {
            &[Param { name: "vms", default: "7", summary: "VMs" }]
        }
        fn needs(&self, _request: &Request<'_>) -> Needs {
            Needs::default()
        }
        fn run(
            &self,
            _request: &Request<'_>,
            _progress: &mut dyn Progress,
        ) -> Result<Vec<ResultRow>, anyhow::Error> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn an_experiment_is_listed_with_its_variants() {
        assert_eq!(
            Section { experiment: &Dummy, detailed: false, colour: false }.to_string(),
            "dummy: what nothing costs\n  machine  mayfly  at once\n  kvm      kernel  as it is\n"
        );
    }

    #[test]
    fn a_named_experiment_is_told_in_full() {
        let told = Section { experiment: &Dummy, detailed: true, colour: false }.to_string();
        let first = "dummy: what nothing costs\n\nNothing was ever\nmeasured.\n\nVariants:\n  machine  mayfly  at once\n  \
                     kvm      kernel  as it is\n\nMetrics:\n  total          all of it\n  cpu_caller     CPU time";
        assert!(told.starts_with(first), "{told}");
        let last = "less work\n\nParameters:\n  --vms  VMs [default: 7]\n";
        assert!(told.ends_with(last), "{told}");
    }
}
