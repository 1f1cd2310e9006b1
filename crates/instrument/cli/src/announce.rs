//! What a run takes and changes, told before it begins.

use std::fmt::{self, Display};
use std::time::Duration;

use mayfly_lab::{Needs, Plan, Planned, Variant};
use mayfly_record::{Backend, Goal, units};

/// A run that takes no longer, and changes nothing, needs no announcement.
const SHORT: Duration = Duration::from_secs(10);

/// The one line that comes before a run, if it is worth one.
pub(crate) fn line(needs: &Needs, goal: Goal) -> Option<String> {
    let is_worth = needs.time.max(goal.time()) > SHORT || !needs.changes.is_empty();
    is_worth.then(|| format!("mayfly: {}{}\n", in_all(needs), again(goal)))
}

/// How often all of it is gone through, if not once.
fn again(goal: Goal) -> String {
    let at_most = units::about(goal.time());
    match goal.precision {
        _ if goal.is_once() => String::new(),
        Some(share) => {
            let share = units::percent(share);
            format!("; then again, until medians are known to {share}, {at_most} in all at most")
        }
        None => format!("; then again, {at_most} in all"),
    }
}

fn in_all(needs: &Needs) -> String {
    format!("{}, {}; {}", units::about(needs.time), memory(needs), changes(needs))
}

fn memory(needs: &Needs) -> String {
    format!("{} of memory", units::bytes(needs.memory))
}

fn changes(needs: &Needs) -> String {
    match &needs.changes[..] {
        [] => "changes nothing on this host".to_owned(),
        changes => format!("changes on this host: {}", changes.join("; ")),
    }
}

/// What would be run.
pub(crate) struct DryRun<'a>(pub(crate) &'a Plan<'a>);

impl Display for DryRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Planned { experiment, variants, skipped, left_out, needs } in self.0.parts() {
            if variants.is_empty() {
                writeln!(f, "{experiment}: nothing")?;
            } else {
                writeln!(f, "{experiment}: {}", in_all(needs))?;
            }
            for backend in Backend::ALL {
                let on_it = |variant: &&&Variant| variant.backend == backend;
                let names: Vec<_> = variants.iter().filter(on_it).map(|one| one.name).collect();
                if !names.is_empty() {
                    writeln!(f, "  on {backend}: {}", names.join(", "))?;
                }
            }
            // All of a backend's for one reason.
            for same in skipped.chunk_by(|(one, why), (other, other_why)| {
                (one.backend, why) == (other.backend, other_why)
            }) {
                let names: Vec<_> = same.iter().map(|(one, _)| one.name).collect();
                let (first, why) = &same[0];
                writeln!(f, "  skipped on {}: {}: {why}", first.backend, names.join(", "))?;
            }
            for why in left_out {
                writeln!(f, "  left out on {}: {why}", Backend::Kvm)?;
            }
        }
        writeln!(f, "in all: {}{}", in_all(&self.0.needs()), again(self.0.goal()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(seconds: u64, changes: &[&str]) -> Needs {
        Needs {
            memory: 2 << 30,
            time: Duration::from_secs(seconds),
            changes: changes.iter().map(|&change| change.to_owned()).collect(),
            ..Needs::default()
        }
    }

    #[test]
    fn a_long_run_is_announced_in_one_line_and_a_short_one_is_not() {
        assert_eq!(line(&needs(10, &[]), Goal::default()), None);
        let told = "mayfly: about 4 min, 2 GiB of memory; changes nothing on this host\n";
        assert_eq!(line(&needs(240, &[]), Goal::default()).as_deref(), Some(told));
    }

    #[test]
    fn what_changes_something_is_announced_however_short_it_is() {
        let told = "mayfly: about 2 s, 2 GiB of memory; changes on this host: one thing; another\n";
        assert_eq!(
            line(&needs(2, &["one thing", "another"]), Goal::default()).as_deref(),
            Some(told)
        );
    }

    #[test]
    fn what_is_repeated_is_announced_with_how_well_and_how_long() {
        let told = |precision, seconds| line(&needs(2, &[]), Goal { precision, seconds }).unwrap();
        assert!(told(Some(0.05), None).ends_with(
            "this host; then again, until medians are known to 5.0%, about 10 min in all at most\n"
        ));
        assert!(told(None, Some(90.0)).ends_with("this host; then again, about 90 s in all\n"));
    }
}
