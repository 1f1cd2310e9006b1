//! Whether guests find what they rely on.

use std::collections::BTreeSet;

use anyhow::anyhow;
use mayfly_machine::scenario::{Scenario, Stale};
use mayfly_record::{Backend, ResultRow};

use crate::mapping::Mapping;
use crate::progress::Progress;

use super::design::Design;
use super::names::{LINES, NAME};

/// A row for each design: every scenario in both mappings.
pub(super) fn rows(
    designs: &[Design],
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    progress.begin(&format!("{NAME}, scenarios"), (designs.len() * Scenario::all().count()) as u64);
    let mut rows = Vec::new();
    for design in designs {
        let mut verdict = Verdict::default();
        for scenario in Scenario::all() {
            let mut first = None;
            for mapping in Mapping::ALL {
                let played = scenario.play(&design.rule(), mapping.backing()).map_err(|error| {
                    let (name, mapping) = (scenario.name, mapping.name());
                    anyhow!("{name} in {mapping} under {}: {error}", design.name())
                })?;
                verdict.reads += played.reads;
                first = first.or(played.stale.first().copied());
            }
            verdict.scenarios += 1;
            verdict.stale.extend(first.map(|stale| (scenario.name, stale)));
            progress.step();
        }
        let row = ResultRow::new(NAME, Backend::Machine, design.name()).param(LINES, "oracle");
        rows.push(verdict.report(row, *design));
    }
    progress.finish();
    Ok(rows)
}

/// What became of the scenarios.
#[derive(Default)]
pub(super) struct Verdict {
    pub(super) scenarios: u64,
    pub(super) reads: u64,
    /// Those in which something was read that was not written last, with the first of it.
    pub(super) stale: Vec<(&'static str, Stale)>,
}

impl Verdict {
    /// Adds it to `row`. A design has to be stale in exactly those scenarios in which it is known to be, and the others in
    /// none; what is read there is a finding, and not a check that went well.
    pub(super) fn report(self, row: ResultRow, design: Design) -> ResultRow {
        let Self { scenarios, reads, stale } = self;
        let (count, known) = (stale.len(), design.known_stale());
        let names: BTreeSet<&str> = stale.iter().map(|(scenario, _)| *scenario).collect();
        let row =
            row.counter("scenarios", scenarios).counter("scenarios_stale", count as u64).check(
                if known.is_empty() { "coherent" } else { "stale_as_known" },
                names.iter().eq(known),
                format!(
                    "stale in {count} of {scenarios} scenarios, {reads} reads{}",
                    off(&names, known)
                ),
            );
        stale.into_iter().fold(row, |row, (scenario, stale)| {
            let name = format!("stale_in_{scenario}");
            if known.contains(&scenario) {
                row.finding(&name, stale.to_string())
            } else {
                row.check(&name, false, stale.to_string())
            }
        })
    }
}

/// How what was found differs from what is known, if it does.
fn off(found: &BTreeSet<&str>, known: &[&str]) -> String {
    let missing: Vec<&str> = known.iter().copied().filter(|name| !found.contains(name)).collect();
    match &missing[..] {
        [] => String::new(),
        missing => format!("; not in {}", missing.join(", ")),
    }
}
