//! What a record has of all sides.

use mayfly_lifecycle_steps::Executed;
use mayfly_record::{Backend, Description, MetricDescription, ResultRow, Samples, Unit};

use super::EXPERIMENT;
use super::job::Step;
use super::run::Measured;
use crate::rows::found;
use crate::run::Side;

/// A metric of a row: its name, what it is of, and how it is read.
type Metric = (&'static str, &'static str, fn(Executed) -> u64);

const METRICS: [Metric; 6] = [
    ("hypervisor", "retired instructions of all but guests", hypervisor),
    ("vmm", "of them, the VMM's", |executed| executed.vmm),
    ("el1", "of them, the host's kernel's at EL1", |executed| executed.el1),
    ("el2", "of them, at EL2", |executed| executed.el2),
    ("guest", "retired instructions of guests", |executed| executed.guest),
    ("whole", "all of them", |executed| hypervisor(executed) + executed.guest),
];

/// Instructions of all but guests.
pub(super) fn hypervisor(executed: Executed) -> u64 {
    executed.vmm + executed.el1 + executed.el2
}

/// A row for each step of each side. Records are not compared whose QEMU or processors differ ([`mayfly_record::MACHINE`]).
pub fn rows(measured: &Measured) -> Vec<ResultRow> {
    let mut rows = Vec::new();
    for (side, step) in
        Side::ALL.into_iter().flat_map(|side| Step::ALL.iter().map(move |step| (side, *step)))
    {
        let told = measured.of(side);
        let Some(executed) = told.step(step) else { continue };
        let row = ResultRow::new(EXPERIMENT, Backend::Metal, side.variant())
            .param("processor", measured.processor.name())
            .param("step", step.name());
        let Measured { qemu, registers, linux, .. } = measured;
        let mut row = found(row, side, qemu, registers, linux);
        if side != Side::Mayfly {
            row = row.finding("vmm", measured.vmm.clone());
        }
        for (name, _, of) in METRICS {
            let unit = Unit::Other("instructions".to_owned());
            row = row.metric(name, &Samples::of(unit, [of(executed)]));
        }
        if step == Step::Boot {
            for (reason, count) in &told.exits.reasons {
                row = row.counter(&format!("exits_{reason}"), *count);
            }
            for (device, count) in &told.exits.devices {
                row = row.counter(&format!("device_{device}"), *count);
            }
        }
        rows.push(row);
    }
    rows
}

/// What a record says of the experiment.
pub(super) fn description() -> Description {
    let metrics = METRICS.into_iter().map(|(name, summary, _)| MetricDescription {
        name: name.to_owned(),
        summary: summary.to_owned(),
        headline: matches!(name, "hypervisor" | "whole"),
    });
    Description {
        name: EXPERIMENT.to_owned(),
        summary: "Linux guests and their devices, on Mayfly at EL2 beside KVM under QEMU, in retired instructions"
            .to_owned(),
        metrics: metrics.collect(),
        ..Description::default()
    }
}
