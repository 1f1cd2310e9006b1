//! What two hosts write, of which one makes VMs wait, and what a watch writes that sees something of everything.

use std::time::{Duration, SystemTime};

use mayfly_doctor::Examination;
use mayfly_kvm::{Call, Pair};
use mayfly_record::{Backend, Host, ResultRow, Samples, Unit};
use mayfly_watch::{Exits, Row, Sight, State, Wait};

/// What `mayfly doctor` writes of a host that has findings, or none.
pub(crate) fn doctor(is_affected: bool) -> String {
    let long = if is_affected { 6_000_000 } else { 50_000 };
    let pair = Pair {
        at_once: vec![long; 4],
        later: vec![40_000; 4],
        ..Pair::new(Call::IrqchipFull, Call::MemslotAdd)
    };
    let row = |probe, metric| {
        let samples = Samples::of(Unit::Nanoseconds, [long]);
        ResultRow::new(mayfly_doctor::NAME, Backend::Kvm, probe).metric(metric, &samples)
    };
    let seen = Examination {
        host: Host { hz: Some(250), ..Host::default() },
        pairs: vec![pair],
        rows: vec![row("life", "close"), row("builder-full", "start")],
        took: Duration::from_secs(7),
        conditions: None,
    };
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert_eq!(seen.findings().is_empty(), !is_affected);
    mayfly_doctor::openmetrics(&seen, now)
}

/// What `mayfly watch` writes of a host with a VM of each state, one of which waits in a call.
pub(crate) fn watch() -> String {
    let exits = Exits { all: 9, by_reason: [("io", 4)].into() };
    let rows = State::ALL.into_iter().zip(1..).map(|(state, pid)| Row {
        pid,
        vm: 9,
        program: "qemu-system-x86".to_owned(),
        name: (state == State::Runs).then(|| "we\"b\\-\n1".to_owned()),
        vcpus: Some(2),
        state,
        busy: Some(50),
        exits: Some(exits.clone()),
        recent: None,
        source: Some("debugfs"),
        waits: vec![Wait {
            call: "KVM_IOEVENTFD".to_owned(),
            function: None,
            looks: 3,
            at_least: Duration::from_secs(1),
        }],
        missing: None,
    });
    mayfly_watch::openmetrics(&Sight {
        at: SystemTime::now(),
        took: Duration::from_secs(1),
        looks: 45,
        rows: rows.collect(),
        missing: vec![],
    })
}
