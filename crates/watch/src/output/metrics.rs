//! Metrics in the `OpenMetrics` text format, for a node exporter's textfile collector.
//!
//! The collector reads the older Prometheus text format; what is written here is both.

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use crate::row::{Row, Sight, State};

/// A sight: what VMs have left their guests for since they were made, and what they did in this interval.
pub fn openmetrics(sight: &Sight) -> String {
    let mut text = String::new();
    let exits = sight.rows.iter().flat_map(|row| {
        let exits = row.exits.iter();
        exits.flat_map(|exits| {
            let reasons = exits.by_reason.iter().map(|(reason, count)| (*reason, *count));
            reasons
                .chain([("other", exits.other())])
                .map(|(reason, count)| (labels(row, &[("reason", reason)]), count.to_string()))
        })
    });
    let help = "How often a VM's vCPUs have left their guests, by reason.";
    family(&mut text, "vm_exits", "counter", help, exits);
    let vcpus = sight.rows.iter();
    let vcpus = vcpus.filter_map(|row| Some((labels(row, &[]), row.vcpus?.to_string())));
    family(&mut text, "vm_vcpus", "gauge", "How many vCPUs a VM has.", vcpus);
    let states = sight.rows.iter().flat_map(|row| {
        State::ALL.map(|state| {
            let is = u8::from(row.state == state).to_string();
            (labels(row, &[("state", &state.to_string())]), is)
        })
    });
    family(
        &mut text,
        "vm_state",
        "gauge",
        "Whether a VM is in this state (1), or not (0).",
        states,
    );
    let busy = sight
        .rows
        .iter()
        .filter_map(|row| Some((labels(row, &[]), format!("{}", f64::from(row.busy?) / 100.0))));
    let help = "The share of looks at its vCPUs' threads that found one at work.";
    family(&mut text, "vm_busy_ratio", "gauge", help, busy);
    let waits = sight.rows.iter().flat_map(|row| {
        row.waits.iter().map(|wait| {
            let seconds = format!("{:.6}", wait.at_least.as_secs_f64());
            (labels(row, &[("call", &wait.call)]), seconds)
        })
    });
    let help = "How long a call to KVM was seen to wait, at least, of those seen in this interval.";
    family(&mut text, "vm_call_wait_seconds", "gauge", help, waits);
    let time = sight.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let one = |value: String| [(String::new(), value)];
    family(&mut text, "vms", "gauge", "How many VMs were seen.", one(sight.rows.len().to_string()));
    let help = "When it was looked, in seconds since 1970.";
    family(&mut text, "timestamp_seconds", "gauge", help, one(time.to_string()));
    text.push_str("# EOF\n");
    text
}

/// A metric and its samples; nothing where there are none.
fn family(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl IntoIterator<Item = (String, String)>,
) {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return;
    }
    // The older format has a counter's samples by its name, and this one with an ending: so the name has it, too.
    let ending = if kind == "counter" { "_total" } else { "" };
    let name = format!("mayfly_watch_{name}");
    // Writing to a String does not fail.
    let _ = writeln!(text, "# HELP {name}{ending} {help}\n# TYPE {name}{ending} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(text, "{name}{ending}{labels} {value}");
    }
}

fn labels(row: &Row, more: &[(&str, &str)]) -> String {
    let (pid, vm) = (row.pid.to_string(), row.vm.to_string());
    let all = [("pid", pid.as_str()), ("vm", &vm), ("program", &row.program)];
    let all = all.iter().chain(more).map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", all.collect::<Vec<_>>().join(","))
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
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
        let none =
            Row { vm: 13, vcpus: None, busy: None, exits: None, waits: vec![], ..row.clone() };
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
        assert!(exits.iter().all(|one| matches!(one.value, Value::Counter(4.0 | 5.0))));
        assert_eq!((of("vm_vcpus").len(), of("vm_state").len(), of("vms").len()), (1, 10, 1));
        assert_eq!(of("vm_call_wait_seconds")[0].labels.get("call"), Some("KVM_CREATE_VCPU"));
    }
}
