//! A sight for programs: a JSON object in a line.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use mayfly_record::nanoseconds;
use serde::Serialize;

use crate::counters;
use crate::row::{Row, Sight};

/// The name of the form. Additive changes keep it.
const SCHEMA: &str = "mayfly.watch/1";

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    /// When the interval ended, since 1970.
    time_ns: u64,
    took_ns: u64,
    looks: u32,
    vms: Vec<Vm<'a>>,
    missing: &'a [String],
}

/// What is not known has no member.
#[derive(Serialize)]
struct Vm<'a> {
    pid: i32,
    #[serde(rename = "vm")]
    descriptor: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    program: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    vcpus: Option<usize>,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    busy_percent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exits: Option<Exits<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recent: Option<Exits<'a>>,
    waits: Vec<Wait<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a str>,
}

#[derive(Serialize)]
struct Exits<'a> {
    all: u64,
    by_reason: &'a BTreeMap<&'static str, u64>,
    other: u64,
}

#[derive(Serialize)]
struct Wait<'a> {
    call: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'a str>,
    looks: u32,
    at_least_ns: u64,
}

/// A line for the interval, with all of its VMs.
///
/// # Panics
/// Never: all of its maps have strings for keys, and no number of it is without a JSON form.
pub fn json(sight: &Sight) -> String {
    let line = Line {
        schema: SCHEMA,
        time_ns: nanoseconds(sight.at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        took_ns: nanoseconds(sight.took),
        looks: sight.looks,
        vms: sight.rows.iter().map(of_row).collect(),
        missing: &sight.missing,
    };
    serde_json::to_string(&line).expect("a sight has a JSON form") + "\n"
}

fn of_row(row: &Row) -> Vm<'_> {
    let waits = row.waits.iter().map(|wait| Wait {
        call: &wait.call,
        function: wait.function.as_deref(),
        looks: wait.looks,
        at_least_ns: nanoseconds(wait.at_least),
    });
    Vm {
        pid: row.pid,
        descriptor: row.vm,
        name: row.name.as_deref(),
        program: &row.program,
        vcpus: row.vcpus,
        state: row.state.to_string(),
        busy_percent: row.busy,
        source: row.source,
        exits: row.exits.as_ref().map(of_exits),
        recent: row.recent.as_ref().map(of_exits),
        waits: waits.collect(),
        missing: row.missing.as_deref(),
    }
}

fn of_exits(exits: &counters::Exits) -> Exits<'_> {
    Exits { all: exits.all, by_reason: &exits.by_reason, other: exits.other() }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::{Value, json as expected};

    use super::*;
    use crate::row::{State, Wait};

    #[test]
    fn a_line_has_all_that_is_known_of_each_vm_and_no_member_for_what_is_not() {
        let exits = counters::Exits { all: 9, by_reason: [("io", 4)].into() };
        let known = Row {
            pid: 7,
            vm: 12,
            program: "qemu".to_owned(),
            name: Some("web\"\n1".to_owned()),
            vcpus: Some(2),
            state: State::Runs,
            busy: Some(25),
            exits: Some(exits.clone()),
            recent: Some(exits),
            source: Some("debugfs"),
            waits: vec![Wait {
                call: "KVM_CREATE_VCPU".to_owned(),
                function: Some("synchronize_srcu".to_owned()),
                looks: 3,
                at_least: Duration::from_millis(5),
            }],
            missing: None,
        };
        let unknown = Row {
            vm: 13,
            name: None,
            vcpus: None,
            state: State::Unknown,
            busy: None,
            exits: None,
            recent: None,
            source: None,
            waits: vec![],
            missing: Some("no debugfs".to_owned()),
            ..known.clone()
        };
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1500);
        let sight = Sight {
            at,
            took: Duration::from_secs(1),
            looks: 45,
            rows: vec![known, unknown],
            missing: vec!["1 process belongs to another user".to_owned()],
        };
        let line = json(&sight);
        assert_eq!(line.find('\n'), Some(line.len() - 1));
        let exits = expected!({"all": 9, "by_reason": {"io": 4}, "other": 5});
        let expected = expected!({
            "schema": "mayfly.watch/1",
            "time_ns": 1_500_000_000_u64,
            "took_ns": 1_000_000_000_u64,
            "looks": 45,
            "vms": [
                {
                    "pid": 7, "vm": 12, "name": "web\"\n1", "program": "qemu", "vcpus": 2, "state": "runs",
                    "busy_percent": 25, "source": "debugfs", "exits": exits, "recent": exits,
                    "waits": [{
                        "call": "KVM_CREATE_VCPU", "function": "synchronize_srcu", "looks": 3,
                        "at_least_ns": 5_000_000,
                    }],
                },
                {"pid": 7, "vm": 13, "program": "qemu", "state": "unknown", "waits": [], "missing": "no debugfs"},
            ],
            "missing": ["1 process belongs to another user"],
        });
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
    }
}
