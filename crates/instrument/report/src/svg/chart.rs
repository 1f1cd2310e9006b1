//! The numbers of a picture, as a record has them.

use mayfly_record::{BASELINE, Backend, Description, Record, ResultRow, Unit, units};
use serde_json::Value as Json;

use super::label::micro;
use super::rows::{PICTURED, Pictured};
use crate::group::IN_BYTES;

/// The variant that is the running kernel's KVM.
const KERNEL: &str = "kernel";

/// What of a record is drawn.
pub(super) struct Chart {
    pub(super) panels: Vec<Panel>,
}

/// One experiment.
pub(super) struct Panel {
    pub(super) experiment: &'static str,
    /// What is measured, and with which parameters.
    pub(super) caption: String,
    pub(super) unit: Unit,
    pub(super) bars: [Bar; 3],
}

/// One median.
pub(super) struct Bar {
    pub(super) source: Source,
    pub(super) label: String,
    /// The median, or why there is none.
    pub(super) value: Result<Value, String>,
}

/// Whose a bar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Kvm,
    Before,
    Mayfly,
}

/// A number, and whether it comes from a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) number: u64,
    modelled: bool,
}

impl Chart {
    /// The experiments of a record that are drawn, of which it has Mayfly's row.
    pub(super) fn of(record: &Record) -> Self {
        Self { panels: PICTURED.iter().filter_map(|pictured| panel(record, pictured)).collect() }
    }

    /// The chart in sentences, for a reader who does not see it.
    pub(super) fn told(&self) -> String {
        let panel = |panel: &Panel| {
            let bars = panel.bars.iter().map(|bar| match &bar.value {
                Ok(value) => format!("{}: {}", bar.label, micro(&value.told(&panel.unit))),
                Err(why) => format!("{}: {why}", bar.label),
            });
            let bars: Vec<String> = bars.collect();
            format!("{}, {}: {}.", panel.experiment, panel.caption, bars.join("; "))
        };
        self.panels.iter().map(panel).collect::<Vec<_>>().join(" ")
    }
}

impl Bar {
    /// The median, if there is one.
    pub(super) fn number(&self) -> Option<u64> {
        self.value.as_ref().ok().map(|value| value.number)
    }
}

impl Value {
    pub(super) fn told(self, unit: &Unit) -> String {
        let modelled = if self.modelled { ", modelled" } else { "" };
        unit.shown(self.number) + modelled
    }
}

fn panel(record: &Record, pictured: &Pictured) -> Option<Panel> {
    let rows = || record.results.iter().filter(|row| row.experiment == pictured.experiment);
    let of = |backend, variant: &'static str| {
        rows().filter(move |row| row.backend == backend && row.variant == variant)
    };
    let known = record.experiments.iter().find(|known| known.name == pictured.experiment);
    let measured = |row: &&ResultRow| value(row, pictured).is_some();
    let owns: Vec<&ResultRow> = of(Backend::Machine, BASELINE).filter(measured).collect();
    let kvms: Vec<&ResultRow> = of(Backend::Kvm, KERNEL).filter(measured).collect();
    let own = chosen(&owns, &kvms, known)?;
    let beside = |row: &&ResultRow| is_beside(row, own);
    let (_, unit) = value(own, pictured)?;
    let bar = |source, label: &str, row: Option<&ResultRow>| Bar {
        source,
        label: label.to_owned(),
        value: drawn(row, pictured, &unit),
    };
    Some(Panel {
        experiment: pictured.experiment,
        caption: captioned(pictured, own),
        bars: [
            bar(Source::Kvm, "this host's KVM", of(Backend::Kvm, KERNEL).find(beside)),
            bar(
                Source::Before,
                pictured.before_title,
                of(Backend::Machine, pictured.before).find(beside),
            ),
            bar(Source::Mayfly, "Mayfly", Some(own)),
        ],
        unit,
    })
}

/// The row of Mayfly's that is drawn. It ran with parameters with which KVM ran, too, if there are any; of these with the ones
/// that the experiment's answer is of, if these are among them.
fn chosen<'a>(
    owns: &[&'a ResultRow],
    kvms: &[&ResultRow],
    known: Option<&Description>,
) -> Option<&'a ResultRow> {
    let has_kvm = |own: &&&ResultRow| kvms.iter().any(|kvm| is_beside(kvm, own));
    let answers = |own: &&&ResultRow| {
        let mut params = known.into_iter().flat_map(|known| &known.answered_by);
        params.all(|(name, value)| own.params.get(name) == Some(value))
    };
    let both = owns.iter().find(|own| has_kvm(own) && answers(own));
    both.or_else(|| owns.iter().find(has_kvm))
        .or_else(|| owns.iter().find(answers))
        .or_else(|| owns.first())
        .copied()
}

/// Whether a row ran as another one did: no parameter that both have differs, but for chance and the tick, which are the
/// host's on KVM.
fn is_beside(row: &ResultRow, own: &ResultRow) -> bool {
    let differs = |(name, value): (&String, &Json)| {
        !["seed", "hz"].contains(&name.as_str())
            && own.params.get(name).is_some_and(|own| own != value)
    };
    !row.params.iter().any(differs)
}

fn drawn(row: Option<&ResultRow>, pictured: &Pictured, unit: &Unit) -> Result<Value, String> {
    let row = row.ok_or("not measured")?;
    match value(row, pictured) {
        Some((value, of)) if of == *unit => Ok(value),
        Some(_) => Err("measured in another unit".to_owned()),
        None => Err(row.skipped.clone().unwrap_or_else(|| "not measured".to_owned())),
    }
}

fn value(row: &ResultRow, pictured: &Pictured) -> Option<(Value, Unit)> {
    pictured.metrics.iter().find_map(|name| {
        let summary = row.metrics.get(*name)?;
        let modelled = name.starts_with("modelled_");
        Some((Value { number: summary.p50, modelled }, summary.unit.clone()))
    })
}

/// What is measured, and how large the VM was.
fn captioned(pictured: &Pictured, row: &ResultRow) -> String {
    let told = |name: &&str| match row.params.get(*name)? {
        Json::Number(number) if IN_BYTES.contains(name) => number.as_u64().map(units::bytes),
        Json::Number(number) => number.as_u64().map(|number| units::things(number, thing(name))),
        Json::String(text) => Some(format!("{name} {text}")),
        _ => None,
    };
    let sizes: Vec<String> = pictured.sizes.iter().filter_map(told).collect();
    if sizes.is_empty() {
        pictured.caption.to_owned()
    } else {
        format!("{} ({})", pictured.caption, sizes.join(", "))
    }
}

/// What a parameter counts.
fn thing(name: &str) -> &str {
    match name {
        "vcpus" => "vCPU",
        "vms" => "VM",
        "devices" => "device",
        other => other,
    }
}
