use serde_json::Value;

use super::*;
use crate::record::{Cause, Object, Process};

fn call(tid: i32, at: u64, took: Option<u64>, name: &str) -> Call {
    Call { tid, pid: 7, at, took, name: name.to_owned(), ..Call::default() }
}

/// A program with a vCPU thread; a call whose end was not seen, in the middle and at the end; and a thread's number that
/// is used again.
fn traced() -> Trace {
    let thread = |tid, at, gone| Thread { tid, pid: 7, at, gone, ..Thread::default() };
    let mut calls = vec![
        call(7, 1_001, Some(30_000_007), "KVM_CREATE_VM"),
        call(8, 40_000_000, Some(5), "KVM_RUN"),
        call(7, 40_000_001, None, "mmap"),
        call(7, 50_000_000, None, "munmap"),
        call(8, 70_000_000, Some(0), "close"),
    ];
    calls[0].arguments.insert("type".to_owned(), 0);
    calls[0].result = Some(4);
    calls[1].on = Some(Object::Vcpu { vm: 0, id: 3 });
    calls[2].arguments.insert("length".to_owned(), 1 << 20);
    calls[2].result = Some(-12);
    calls[2].arguments.insert("address".to_owned(), u64::MAX);
    let wait = |what: &str, tid, at, took| Stall {
        what: what.to_owned(),
        tid,
        at,
        took,
        ..Stall::default()
    };
    let mut stalls = vec![
        wait("KVM_CREATE_VM", 7, 1_001, 30_000_007),
        wait(
            "the rest of a sleep, after the last vCPU's thread had ended",
            7,
            10_000_000,
            9_000_000,
        ),
        wait("the end of the process", 7, 60_000_000, 1_000_000),
    ];
    let code = "huge-page-worker".to_owned();
    stalls[0].cause =
        Some(Cause { code, evidence: vec!["seen".into(), "there".into()], ..Cause::default() });
    Trace {
        command: vec!["/bin/vmm".into(), "-x".into()],
        span: 80_000_000,
        processes: vec![Process {
            pid: 7,
            executed: vec![(1_000, "/bin/vmm".into())],
            ..Process::default()
        }],
        threads: vec![
            thread(7, 0, Some(79_000_000)),
            thread(8, 35_000_000, Some(60_000_000)),
            thread(8, 65_000_000, None),
        ],
        calls,
        phases: vec![
            Phase { name: "exec".into(), at: 1_000, took: 1_000, ..Phase::default() },
            Phase {
                name: "VM created".into(),
                at: 30_001_008,
                took: 30_000_008,
                calls: 1,
                in_calls: 5,
            },
        ],
        samples: vec![
            Sample {
                tid: 8,
                at: 41_000_000,
                took: 9_000_000,
                seen: 9,
                call: Some((16, [9, 0xAE80, 0, 0])),
                ..Sample::default()
            },
            Sample {
                tid: 8,
                at: 66_000_000,
                took: 1_000_000,
                seen: 1,
                channel: Some("do_poll".into()),
                ..Sample::default()
            },
        ],
        stalls,
        ..Trace::default()
    }
}

fn read(trace: &Trace) -> Vec<Value> {
    let document: Value = serde_json::from_str(&trace.to_timeline()).unwrap();
    document["traceEvents"].as_array().unwrap().clone()
}

fn of<'a>(events: &'a [Value], cats: &[&str]) -> Vec<&'a Value> {
    events.iter().filter(|one| cats.contains(&one["cat"].as_str().unwrap_or_default())).collect()
}

fn nanoseconds(time: &Value) -> u64 {
    (time.as_f64().unwrap() * 1e3).round() as u64
}

/// Thread, name, beginning and end.
fn place(event: &Value) -> (i64, &str, u64, u64) {
    let from = nanoseconds(&event["ts"]);
    let name = event["name"].as_str().unwrap();
    (event["tid"].as_i64().unwrap(), name, from, from + nanoseconds(&event["dur"]))
}

#[test]
fn each_call_is_there_once_with_its_time_and_thread() {
    let trace = traced();
    let events = read(&trace);
    let calls: Vec<_> = of(&events, &["kvm", "call"]).into_iter().map(place).collect();
    let expected = [
        (7, "KVM_CREATE_VM", 1_001, 30_001_008),
        (8, "KVM_RUN", 40_000_000, 40_000_005),
        // Until its thread did something else, and until its thread was gone.
        (7, "mmap", 40_000_001, 50_000_000),
        (7, "munmap", 50_000_000, 79_000_000),
        (8, "close", 70_000_000, 70_000_000),
    ];
    assert_eq!(calls, expected);
}

#[test]
fn a_time_of_days_is_exact_to_the_nanosecond() {
    let mut trace = traced();
    let at = 7 * 86_400_000_000_000 + 123_456_789;
    trace.calls = vec![call(7, at, Some(1_000_003), "dup")];
    trace.threads[0].gone = None;
    let events = read(&trace);
    assert_eq!(place(of(&events, &["call"])[0]), (7, "dup", at, at + 1_000_003));
}

#[test]
fn arguments_and_results_are_as_a_person_reads_them() {
    let events = read(&traced());
    let calls = of(&events, &["kvm", "call"]);
    let mmap = &calls[2]["args"];
    assert_eq!(mmap["address"], "0xffffffffffffffff");
    assert_eq!(mmap["length"], "1 MiB");
    assert!(mmap["result"].as_str().unwrap().contains("allocate memory"), "{mmap}");
    assert_eq!(calls[0]["args"]["result"], "4");
    assert_eq!(calls[3]["args"]["result"], "not seen");
    assert_eq!(calls[1]["args"]["on"], "vCPU 3 of VM 0");
}

#[test]
fn phases_have_a_track_of_their_own_and_no_thread_of_the_program_is_on_it() {
    let events = read(&traced());
    let phases: Vec<_> = of(&events, &["phase"]).into_iter().map(place).collect();
    let track = i64::from(NOBODY);
    assert_eq!(phases, [(track, "exec", 0, 1_000), (track, "VM created", 1_000, 30_001_008)]);
    let others = events.iter().filter(|one| one["pid"] == NOBODY && one["tid"] == NOBODY);
    assert!(others.into_iter().all(|one| one["ph"] == "M" || one["cat"] == "phase"));
}

#[test]
fn waits_say_their_causes_on_their_own_tracks_and_on_their_calls() {
    let events = read(&traced());
    let waits = of(&events, &["wait"]);
    let tracks: Vec<i64> = waits.iter().map(|one| one["tid"].as_i64().unwrap()).collect();
    let first = i64::from(NOBODY) + 1;
    // The second is during the first; the third is after both.
    assert_eq!(tracks, [first, first + 1, first]);
    assert_eq!(waits[0]["name"], "KVM_CREATE_VM: huge-page-worker (likely)");
    assert!(waits[1]["name"].as_str().unwrap().ends_with(": unexplained"));
    let calls = of(&events, &["kvm", "call"]);
    assert_eq!(calls[0]["args"]["wait"], "huge-page-worker (likely)");
    assert_eq!(calls[0]["args"]["because"], "seen; there");
    assert_eq!(calls.iter().filter(|one| !one["args"]["wait"].is_null()).count(), 1);
}

#[test]
fn slices_of_a_track_never_cross() {
    let events = read(&traced());
    let slices: Vec<&Value> = events.iter().filter(|one| one["ph"] == "X").collect();
    for (number, one) in slices.iter().enumerate() {
        for other in &slices[number + 1..] {
            if one["pid"] == other["pid"] && one["tid"] == other["tid"] {
                let ((.., from, to), (.., begins, ends)) = (place(one), place(other));
                assert!(to <= begins || ends <= from, "{one} and {other}");
            }
        }
    }
}

#[test]
fn every_track_has_a_name_and_what_was_seen_of_a_thread_stands_beside_it() {
    let events = read(&traced());
    let named = |event: &Value| {
        let is_it = |one: &&Value| {
            one["name"] == "thread_name" && one["pid"] == event["pid"] && one["tid"] == event["tid"]
        };
        events.iter().find(is_it).map(|one| one["args"]["name"].as_str().unwrap().to_owned())
    };
    for event in events.iter().filter(|one| one["ph"] == "X") {
        assert!(named(event).is_some(), "{event}");
    }
    let seen = of(&events, &["seen"]);
    assert_eq!((&seen[0]["name"], &seen[1]["name"]), (&"KVM_RUN".into(), &"do_poll".into()));
    // One number, and two threads that had it.
    assert_ne!(seen[0]["tid"], seen[1]["tid"]);
    assert_eq!(named(seen[0]).as_deref(), Some("thread 8, as it was seen"));
    let first = events.iter().find(|one| one["name"] == "thread_name" && one["tid"] == 8).unwrap();
    assert_eq!(first["args"]["name"], "vCPU 3 of VM 0, thread 8");
}
