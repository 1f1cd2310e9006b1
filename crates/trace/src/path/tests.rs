use super::*;
use crate::record::{Call, Process, Sample, Wake};

const MS: u64 = 1_000_000;

fn thread(tid: i32, maker: Option<i32>, at: u64, gone: u64) -> Thread {
    let (ending, gone) = (Some(gone * MS - 1), Some(gone * MS));
    Thread { tid, pid: 1, maker, at: at * MS, ending, gone, vcpu: tid == 2, ..Thread::default() }
}

fn call(tid: i32, name: &str, at: u64, took: u64) -> Call {
    let (at, took) = (at * MS, Some(took * MS));
    Call { tid, pid: 1, at, took, name: name.into(), result: Some(0), ..Call::default() }
}

fn wake(tid: i32, since: u64, at: u64, by: Option<i32>) -> Wake {
    Wake { tid, since: since * MS, at: at * MS, by }
}

/// The program runs for 200 ms: its first thread makes another, which runs a vCPU from 60 to 150 ms.
fn trace(calls: Vec<Call>, wakes: Vec<Wake>) -> Trace {
    let process = Process { pid: 1, gone: Some(200 * MS), ..Process::default() };
    let process = Process { executed: vec![(MS, "/vmm".into())], ..process };
    let mut calls = calls;
    calls.push(call(1, "KVM_CREATE_VM", 10, 20));
    calls.push(call(2, "KVM_RUN", 60, 90));
    calls.sort_by_key(|call| call.at);
    let mut trace = Trace {
        span: 200 * MS,
        processes: vec![process],
        threads: vec![
            thread(1, None, 0, 200),
            thread(2, Some(1), 40, 151),
            thread(3, Some(1), 2, 199),
        ],
        calls,
        wakes,
        ..Trace::default()
    };
    trace.phases = trace.find_phases();
    trace.critical_paths = trace.find_critical_paths();
    trace
}

/// Thread, beginning and length of each piece, in milliseconds.
fn told(path: &CriticalPath) -> Vec<(i32, u64, u64, Doing)> {
    let one = |piece: &Piece| (piece.tid, piece.at / MS, piece.took / MS, piece.doing.clone());
    path.pieces.iter().map(one).collect()
}

fn kvm(name: &str) -> Doing {
    Doing::Call(name.into())
}

#[test]
fn from_the_first_entry_the_way_leads_to_the_thread_that_made_the_one_that_entered() {
    let trace = trace(vec![], vec![wake(3, 5, 190, None)]);
    let start = &trace.critical_paths[0];
    assert_eq!((start.to.as_str(), start.at, start.took), ("first entry", MS, 59 * MS));
    let expected = [
        (1, 1, 9, Doing::Own),
        (1, 10, 20, kvm("KVM_CREATE_VM")),
        (1, 30, 10, Doing::Own),
        (2, 40, 20, Doing::Own),
    ];
    assert_eq!(told(start), expected);
    assert!(!start.inferred);
}

#[test]
fn what_another_thread_did_is_on_the_path_and_the_wait_for_it_is_not() {
    // The first thread waits from 31 to 38 for the third, which reads meanwhile; that it waited long is nobody's matter.
    let calls = vec![call(3, "mmap", 20, 17), call(1, "munmap", 39, 1)];
    let trace = trace(calls, vec![wake(1, 31, 38, Some(3)), wake(3, 3, 12, Some(1))]);
    let expected = [
        (1, 1, 9, Doing::Own),
        (1, 10, 2, kvm("KVM_CREATE_VM")),
        (3, 12, 8, Doing::Own),
        (3, 20, 17, kvm("mmap")),
    ];
    let told = told(&trace.critical_paths[0]);
    assert_eq!(told[..4], expected);
    assert_eq!(told.last().unwrap(), &(2, 40, 20, Doing::Own));
    // Without gaps, whatever is not told apart.
    let took: u64 = trace.critical_paths[0].pieces.iter().map(|piece| piece.took).sum();
    assert_eq!(took, 59 * MS);
}

#[test]
fn who_sleeps_and_looks_again_is_shown_to_poll() {
    let sleep = |at| {
        let mut call = call(1, "sleep", at, 9);
        call.arguments.insert("time".into(), 9 * MS);
        call.took = Some(10 * MS - 50_000);
        call
    };
    let calls = vec![sleep(152), sleep(162), sleep(172), sleep(182)];
    let trace = trace(calls, vec![wake(1, 152, 161, None), wake(1, 182, 191, None)]);
    let stop = &trace.critical_paths[1];
    assert_eq!((stop.to.as_str(), stop.took / MS), ("process gone", 49));
    let polls = told(stop).into_iter().find(|one| matches!(one.3, Doing::Sleeps { .. })).unwrap();
    assert_eq!(polls.3, Doing::Sleeps { times: 4, each: 9 * MS });
    assert_eq!((polls.0, polls.1), (1, 152));
    assert!(Doing::Sleeps { times: 4, each: 9 * MS }.to_string().starts_with("polls: 4 sleeps"));
}

#[test]
fn who_is_joined_is_inferred_where_no_wake_up_was_seen() {
    // The first thread is looked at while it waits on a futex, until the third has ended.
    let wait = Sample {
        tid: 1,
        at: 70 * MS,
        took: 100 * MS,
        seen: 80,
        call: Some((libc::SYS_futex as u64, [0; 4])),
        channel: Some("futex_do_wait".into()),
        ..Sample::default()
    };
    let mut one = trace(vec![call(3, "munmap", 155, 10), call(1, "munmap", 172, 20)], vec![]);
    one.samples = vec![wait];
    (one.threads[2].ending, one.threads[2].gone) = (Some(170 * MS), Some(171 * MS));
    one.critical_paths = one.find_critical_paths();
    let stop = &one.critical_paths[1];
    assert!(stop.inferred && stop.title().ends_with("is inferred, not seen"), "{stop:?}");
    assert!(told(stop).contains(&(3, 155, 10, kvm("munmap"))), "{stop:?}");
    assert!(told(stop).contains(&(1, 172, 20, kvm("munmap"))), "{stop:?}");
    assert!(one.critical_paths[0].title().contains("first entry: 59.0 ms, 2 threads"));
    // Two others are there, and none of them has ended: which it was is not said.
    one.threads[2].ending = None;
    one.threads[1].gone = None;
    let index = Index::of(&one);
    assert_eq!(Wakes::of(&one, &index).last(1, 199 * MS), None);
}

#[test]
fn there_are_ten_pieces_at_the_most_and_they_leave_nothing_out() {
    let many = (0..200).map(|number| {
        let mut call = call(1, "close", 30, 0);
        (call.at, call.took) = (30 * MS + number * 50_000, Some(20_000));
        call
    });
    let turns = (0..40).flat_map(|turn: u64| {
        let at = 2 * MS + turn * 200_000;
        let one = |tid, by, at: u64| Wake { tid, since: at - 100_000, at, by: Some(by) };
        [one(1, 3, at), one(3, 1, at + 100_000)]
    });
    let trace = trace(many.collect(), turns.collect());
    let start = &trace.critical_paths[0];
    assert!(start.pieces.len() <= 10, "{start:?}");
    assert_eq!(start.pieces.iter().map(|piece| piece.took).sum::<u64>(), 59 * MS);
    let ends = start.pieces.windows(2).all(|two| two[0].at + two[0].took == two[1].at);
    assert!(ends, "{start:?}");
    let threads = |piece: &Piece| matches!(piece.doing, Doing::Short { threads: 2, .. });
    assert!(start.pieces.iter().any(threads), "{start:?}");
}

#[test]
fn threads_that_wake_each_other_at_one_time_are_no_endless_way() {
    let wakes = vec![wake(1, 1, 39, Some(3)), wake(3, 1, 39, Some(1)), wake(2, 1, 59, Some(2))];
    assert!(!trace(vec![], wakes).critical_paths[0].pieces.is_empty());
    assert!(Trace::default().find_critical_paths().is_empty());
}
