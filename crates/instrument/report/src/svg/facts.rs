//! What a picture was measured on, when, and how the host was meanwhile.

use mayfly_record::{Record, units};

use super::date;
use super::label::cut;
use crate::noise;

/// Lines of `columns` characters at most. What a record says is cut where it is longer than a host's facts are.
pub(super) fn lines(record: &Record, columns: usize) -> Vec<String> {
    let told = sentences(record).join(" ");
    textwrap::wrap(&cut(&told, columns * MOST_LINES), columns)
        .into_iter()
        .map(std::borrow::Cow::into_owned)
        .collect()
}

/// Lines of facts in a picture.
const MOST_LINES: usize = 6;

fn sentences(record: &Record) -> Vec<String> {
    let host = &record.host;
    let machine = if host.guest == Some(true) { " of a virtual machine" } else { "" };
    let cpu = host.cpu.as_deref().unwrap_or(&host.arch);
    let hz = host.hz.map_or_else(String::new, |hz| format!(" at HZ={hz}"));
    let kvm = match (&host.kvm_module, host.kvm) {
        (Some(module), true) => format!(", KVM from {module}"),
        (None, true) => ", with KVM".to_owned(),
        (_, false) => ", without KVM".to_owned(),
    };
    let cpus = units::things(host.cpus as u64, "CPU");
    let mut told = vec![format!("{cpus}{machine} ({cpu}), Linux {}{hz}{kvm}.", host.kernel)];
    if host.time > 0 {
        told.push(format!("Measured on {} by Mayfly {}.", date::day(host.time), host.mayfly));
    }
    if let Some(conditions) = &record.conditions {
        let load =
            conditions.load_before.map(|load| format!("the load was {load:.1} before the run"));
        let share = |share: Option<f64>, went: &str| {
            share.map(|share| format!("{} of the CPUs' time {went}", units::percent(share)))
        };
        let told_of = [
            load,
            share(conditions.others, "went to other processes"),
            share(conditions.stolen, "was stolen"),
        ];
        let told_of: Vec<String> = told_of.into_iter().flatten().collect();
        if !told_of.is_empty() {
            told.push(capitalised(&format!("{}.", told_of.join(", "))));
        }
    }
    if let Some(bound) = noise::bound(record) {
        let times = units::ratio((bound * 10.0).ceil() / 10.0);
        told.push(format!("The host was noisy: ratios below {times} mean nothing."));
    }
    if let Some(why) = &record.partial {
        told.push(format!("The record is not complete: {why}."));
    }
    told
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
