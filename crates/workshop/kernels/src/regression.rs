//! The wait that came with Linux 6.18: a VM's first memslot waits for a grace period that a device's registration has
//! deferred.

use std::process::ExitCode;

use mayfly_doctor::Code;
use mayfly_record::ResultRow;

use crate::archive::Series;
use crate::outcome::Outcome;

/// The first series of kernels that has the wait.
pub(crate) const SINCE: Series = Series { major: 6, minor: 18 };

/// The exit code of a check that cannot run here.
const SKIPPED: u8 = 77;

/// The first memslot takes at least this many times as long since then. A grace period takes ticks, and a call without one
/// only takes instructions: the ratio was 100 and more.
const TIMES: u64 = 20;

/// The median of the first memslot, of a VM that has its devices first.
fn first_memslot(outcome: &Outcome) -> Option<u64> {
    let is_meant = |row: &&ResultRow| {
        row.experiment == "device-registration" && row.params["order"] == "devices-first"
    };
    Some(outcome.rows().find(is_meant)?.metrics.get("first_memslot")?.p50)
}

/// Whether the doctor has found a call that waits for a grace period.
fn is_found(outcome: &Outcome) -> Option<bool> {
    let findings = &outcome.examination.as_ref()?.findings;
    Some(findings.iter().any(|finding| finding.code == Code::GracePeriod))
}

/// Whether the wait is where it has to be; prints one line for each architecture.
pub(crate) fn verdict(outcomes: &[Outcome]) -> ExitCode {
    let mut failed = outcomes.is_empty();
    if outcomes.is_empty() {
        eprintln!("kernels: not run: no kernels can be fetched here");
        return ExitCode::from(SKIPPED);
    }
    for pair in outcomes.chunks(2) {
        let [old, new] = pair else { return ExitCode::FAILURE };
        let name = |outcome: &Outcome| outcome.kernel.version.clone();
        match (first_memslot(old), first_memslot(new)) {
            (Some(before), Some(since)) => {
                let waits = since > TIMES * before;
                failed |= !waits;
                println!(
                    "{}: the first memslot takes {before} virtual ns in {}, and {since} in {}: {}",
                    old.machine.name(),
                    name(old),
                    name(new),
                    if waits { "waits" } else { "does not wait, and is known to" },
                );
            }
            _ => failed = true,
        }
        match (is_found(old), is_found(new)) {
            (Some(before), Some(since)) => {
                failed |= before || !since;
                let says = |found| if found { "names it" } else { "is silent about it" };
                println!(
                    "{}: the doctor {} in {}, and {} in {}",
                    old.machine.name(),
                    says(before),
                    name(old),
                    says(since),
                    name(new),
                );
            }
            _ => failed = true,
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
