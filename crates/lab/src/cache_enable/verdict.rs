//! Whether guests find what they rely on.

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
    /// Adds it to `row`. A design that is known to be stale has to be seen to be; others must not be.
    pub(super) fn report(self, row: ResultRow, design: Design) -> ResultRow {
        let Self { scenarios, reads, stale } = self;
        let count = stale.len() as u64;
        let is_known = design.is_known_to_be_stale();
        let row = row.counter("scenarios", scenarios).counter("scenarios_stale", count);
        let row = row.check(
            if is_known { "stale_as_known" } else { "coherent" },
            if is_known { count > 0 } else { count == 0 },
            format!("stale in {count} of {scenarios} scenarios, {reads} reads"),
        );
        stale.into_iter().fold(row, |row, (scenario, stale)| {
            row.check(&format!("stale_in_{scenario}"), is_known, stale.to_string())
        })
    }
}
