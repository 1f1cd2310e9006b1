//! A sight as metrics, for a node exporter's textfile collector.

use std::fmt::Display;
use std::time::UNIX_EPOCH;

use mayfly_record::{Metrics, Sample};

use crate::row::{Row, Sight, State};

/// A sight: what VMs have left their guests for since they were made, and what they did in this interval.
pub fn openmetrics(sight: &Sight) -> String {
    let mut metrics = Metrics::new("mayfly_watch");
    let exits = sight.rows.iter().flat_map(|row| {
        row.exits.iter().flat_map(|exits| {
            let reasons = exits.by_reason.iter().map(|(reason, count)| (*reason, *count));
            let all = reasons.chain([("other", exits.other())]);
            all.map(|(reason, count)| of(row, Some(("reason", reason)), count))
        })
    });
    let help = "How often a VM's vCPUs have left their guests, by reason.";
    metrics.counter("vm_exits", help, exits);
    let vcpus = sight.rows.iter().filter_map(|row| Some(of(row, None, row.vcpus?)));
    metrics.gauge("vm_vcpus", "How many vCPUs a VM has.", vcpus);
    let states = sight.rows.iter().flat_map(|row| {
        State::ALL
            .map(|state| of(row, Some(("state", &state.to_string())), u8::from(row.state == state)))
    });
    let help = "Whether a VM is in this state (1), or not (0).";
    metrics.gauge("vm_state", help, states);
    let busy = sight.rows.iter();
    let busy = busy.filter_map(|row| Some(of(row, None, f64::from(row.busy?) / 100.0)));
    let help = "The share of looks at its vCPUs' threads that found one at work.";
    metrics.gauge("vm_busy_ratio", help, busy);
    let waits = sight.rows.iter().flat_map(|row| {
        row.waits
            .iter()
            .map(|wait| of(row, Some(("call", &wait.call)), wait.at_least.as_secs_f64()))
    });
    let help = "How long a call to KVM was seen to wait, at least, of those seen in this interval.";
    metrics.gauge("vm_call_wait_seconds", help, waits);
    let vms = Sample::of(&[], sight.rows.len());
    metrics.gauge("vms", "How many VMs were seen.", [vms]);
    let time = sight.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let help = "When the VMs were looked at, in seconds since 1970.";
    metrics.gauge("timestamp_seconds", help, [Sample::of(&[], time)]);
    metrics.finish()
}

fn of(row: &Row, more: Option<(&str, &str)>, value: impl Display) -> Sample {
    let (pid, vm) = (row.pid.to_string(), row.vm.to_string());
    let all = [("pid", pid.as_str()), ("vm", &vm), ("program", &row.program)];
    let name = row.name.as_deref().map(|name| ("name", name));
    Sample::of(&all.into_iter().chain(name).chain(more).collect::<Vec<_>>(), value)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use prometheus_parse::{Scrape, Value};

    use super::*;
    use crate::counters::Exits;
    use crate::row::Wait;

    #[test]
    fn prometheus_reads_what_was_seen_whatever_a_program_is_called() {
        let exits = Exits { all: 9, by_reason: [("io", 4)].into() };
        let row = Row {
            pid: 7,
            vm: 12,
            program: "a\"b\\c".to_owned(),
            name: Some("web\\\"1".to_owned()),
            vcpus: Some(2),
            state: State::Idle,
            busy: Some(25),
            exits: Some(exits),
            recent: None,
            source: Some("debugfs"),
            waits: vec![Wait {
                call: "KVM_CREATE_VCPU".to_owned(),
                function: None,
                looks: 1,
                at_least: Duration::from_millis(5),
            }],
            missing: None,
        };
        let none = Row {
            vm: 13,
            name: None,
            vcpus: None,
            busy: None,
            exits: None,
            waits: vec![],
            ..row.clone()
        };
        let (at, took) = (SystemTime::UNIX_EPOCH, Duration::from_secs(1));
        let text =
            openmetrics(&Sight { at, took, looks: 5, rows: vec![row, none], missing: vec![] });
        assert!(text.ends_with("\n# EOF\n"));
        let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
        let of = |name: &str| {
            let name = format!("mayfly_watch_{name}");
            let samples = scrape.samples.iter().filter(move |sample| sample.metric == name);
            samples.collect::<Vec<_>>()
        };
        let exits = of("vm_exits_total");
        assert_eq!(exits.len(), 2);
        assert!(exits.iter().all(|one| matches!(one.value, Value::Untyped(4.0 | 5.0))));
        assert_eq!((of("vm_vcpus").len(), of("vm_state").len(), of("vms").len()), (1, 10, 1));
        assert_eq!(of("vm_call_wait_seconds")[0].labels.get("call"), Some("KVM_CREATE_VCPU"));
    }
}
