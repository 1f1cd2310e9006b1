mod spent;

use super::*;
use crate::record::{Call, Process, Recorder, Sample, Stall, Thread, Wake};

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
fn a_thread_that_its_process_s_end_has_woken_has_waited_for_work() {
    // The third thread gives up last what all had. It slept until the first one ended the process.
    let ends = |wakes: Vec<Wake>, samples: Vec<Sample>| {
        let mut trace = trace(vec![call(1, "munmap", 170, 15)], wakes);
        let (ending, gone) = (Some(191 * MS), Some(200 * MS));
        trace.threads[0] = Thread { ending: Some(190 * MS), gone, ..trace.threads[0].clone() };
        trace.threads[2] = Thread { ending, gone: Some(201 * MS), ..trace.threads[2].clone() };
        (trace.processes[0].gone, trace.span) = (Some(201 * MS), 201 * MS);
        trace.samples = samples;
        trace.phases = trace.find_phases();
        trace.critical_paths = trace.find_critical_paths();
        let sleeps = |stall: &Stall| stall.tid == 3 && stall.what != "the end of the process";
        let waits = trace.find_stalls().iter().any(sleeps);
        let path = told(&trace.critical_paths[1]);
        let path: Vec<_> = path.into_iter().map(|one| (one.0, one.1, one.2)).collect();
        (path[path.len() - 4..].to_vec(), waits)
    };
    let path =
        |end: u64| vec![(1, 170, 15), (1, 185, end - 185), (3, end, 191 - end), (3, 191, 10)];
    assert_eq!(ends(vec![wake(3, 5, 189, Some(1))], vec![]), (path(189), false));
    // By ptrace it was last seen to sleep when the first thread began to end.
    let channel = Some("do_epoll_wait".to_owned());
    let look = Sample { tid: 3, at: 10 * MS, took: 179 * MS, channel, ..Sample::default() };
    assert_eq!(ends(vec![], vec![look]), (path(190), false));
    // One that another has woken for work, and that slept again, has waited for that one.
    let (_, waits) = ends(vec![wake(3, 170, 188, Some(1)), wake(3, 189, 190, None)], vec![]);
    assert!(waits);
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

#[test]
fn a_wake_up_of_an_earlier_thread_with_the_same_number_is_none_of_a_later_one_s() {
    let mut one = trace(vec![], vec![wake(2, 5, 15, Some(3))]);
    one.threads.insert(0, thread(2, Some(1), 3, 20));
    one.critical_paths = one.find_critical_paths();
    let told = told(&one.critical_paths[0]);
    assert_eq!((&told[0], told.last()), (&(1, 1, 9, Doing::Own), Some(&(2, 40, 20, Doing::Own))));
    assert!(told.iter().all(|piece| piece.0 != 3), "{told:?}");
}

#[test]
fn a_thread_s_beginning_hung_on_who_made_it_and_else_on_its_process_s_first() {
    let by = |maker| {
        let mut one = trace(vec![], vec![wake(3, 5, 190, None)]);
        one.threads[1].maker = maker;
        let found = one.find_critical_paths();
        let mut tids: Vec<i32> = found[0].pieces.iter().map(|piece| piece.tid).collect();
        tids.dedup();
        tids
    };
    assert_eq!((by(Some(3)), by(Some(1)), by(None)), (vec![1, 3, 2], vec![1, 2], vec![1, 2]));
}

#[test]
fn the_end_is_that_of_the_last_thread_of_the_process_that_makes_vms() {
    let ends = |recorder, ending: u64, gone: [u64; 2]| {
        let mut one = trace(vec![], vec![wake(3, 5, 190, None)]);
        one.recorder = recorder;
        one.threads[0].ending = Some(ending * MS);
        (one.threads[0].gone, one.threads[2].gone) = (Some(gone[0] * MS), Some(gone[1] * MS));
        let stop = &one.find_critical_paths()[1];
        (stop.at + stop.took, stop.pieces.last().unwrap().tid)
    };
    assert_eq!(ends(Recorder::Tracefs, 170, [180, 199]), (199 * MS, 3));
    assert_eq!(ends(Recorder::Tracefs, 170, [199, 180]), (199 * MS, 1));
    // By ptrace the first thread is reported when all others are gone.
    assert_eq!(ends(Recorder::Ptrace, 170, [199, 198]), (198 * MS, 3));
    assert_eq!(ends(Recorder::Ptrace, 170, [199, 172]), (199 * MS, 1));
}

#[test]
fn a_first_entry_that_was_seen_by_looks_alone_has_a_path_too() {
    let mut one = trace(vec![], vec![wake(3, 5, 190, None)]);
    one.calls.retain(|call| call.name != "KVM_RUN");
    let run = (libc::SYS_ioctl as u64, [0, crate::calls::KVM_RUN, 0, 0]);
    one.samples = vec![Sample { tid: 2, at: 70 * MS, call: Some(run), ..Sample::default() }];
    let start = &one.find_critical_paths()[0];
    assert_eq!((start.at, start.took, start.pieces.last().unwrap().tid), (MS, 69 * MS, 2));
}

#[test]
fn who_is_none_of_the_program_s_or_oneself_ends_no_wait() {
    // The first thread is in its call from 10 to 30.
    for by in [99, 1] {
        let one = trace(vec![], vec![wake(1, 12, 20, Some(by))]);
        let told = told(&one.critical_paths[0]);
        assert_eq!(told[1], (1, 10, 20, kvm("KVM_CREATE_VM")), "{by}");
        assert!(told.iter().all(|piece| piece.0 != by || by == 1), "{told:?}");
    }
}

#[test]
fn the_last_wake_up_counts_whichever_was_read_first() {
    let wakes = vec![wake(1, 30, 38, Some(3)), wake(1, 3, 12, Some(3)), wake(1, 20, 25, Some(3))];
    let one = trace(vec![], wakes);
    let told = told(&one.critical_paths[0]);
    assert!(told.iter().any(|piece| (piece.0, piece.1) == (1, 38)), "{told:?}");
}

#[test]
fn a_call_that_goes_on_when_its_thread_is_woken_is_on_the_path_from_then() {
    let calls = vec![call(1, "munmap", 31, 8)];
    let one = trace(calls, vec![wake(1, 32, 34, Some(3))]);
    let told = told(&one.critical_paths[0]);
    assert!(told.contains(&(1, 34, 5, kvm("munmap"))), "{told:?}");
    let pieces = &one.critical_paths[0].pieces;
    assert!(pieces.windows(2).all(|two| two[0].at + two[0].took == two[1].at), "{pieces:?}");
}

#[test]
fn what_a_thread_was_seen_to_wait_in_is_said_where_it_was_most_of_the_time() {
    let doing = |took: u64| {
        let mut one = trace(vec![], vec![wake(3, 5, 190, None)]);
        let channel = Some("pipe_read".to_owned());
        let (at, took) = (31 * MS, took * MS);
        one.samples = vec![Sample { tid: 1, at, took, channel, ..Sample::default() }];
        told(&one.find_critical_paths()[0])[2].clone()
    };
    let waits = Doing::Waits("pipe_read".into());
    assert_eq!((doing(6), doing(4)), ((1, 30, 10, waits), (1, 30, 10, Doing::Own)));
}

#[test]
fn who_works_between_two_sleeps_does_not_poll() {
    let one = trace(vec![call(1, "sleep", 152, 10), call(1, "sleep", 170, 10)], vec![]);
    let told = told(&one.critical_paths[1]);
    let slept = Doing::Sleeps { times: 1, each: 0 };
    let expected = [(1, 152, 10, slept.clone()), (1, 162, 8, Doing::Own), (1, 170, 10, slept)];
    assert_eq!(told[1..4], expected, "{told:?}");
}

/// When the first thread's wait on a futex from 70 to 90 ms was ended, and by whom: it is seen at something else so many
/// milliseconds later, the third thread ends when it is said, and something else is different.
fn ended(later: u64, third: Option<u64>, change: fn(&mut Trace)) -> Option<(u64, Option<i32>)> {
    let mut one = trace(vec![call(1, "munmap", 90 + later, 1)], vec![]);
    let call = Some((libc::SYS_futex as u64, [0; 4]));
    let (at, took) = (70 * MS, 20 * MS);
    one.samples = vec![Sample { tid: 1, at, took, call, ..Sample::default() }];
    (one.threads[2].ending, one.threads[2].gone) = (third.map(|at| at * MS), None);
    change(&mut one);
    let index = Index::of(&one);
    let woken = Wakes::of(&one, &index).last(1, 199 * MS);
    woken.map(|woken| (woken.at / MS, woken.by))
}

#[test]
fn a_wait_that_nobody_saw_end_is_inferred_to_end_by_who_ended_then_or_was_alone() {
    let no_change = |_: &mut Trace| {};
    assert_eq!(ended(2, Some(91), no_change), Some((91, Some(3))));
    assert_eq!(ended(2, None, no_change), None, "the second and the third are both there");
    // When the wait was over is not known to a few milliseconds.
    assert_eq!(ended(4, Some(91), no_change), None);
    // A thread of another process is nobody's to join.
    let other = |one: &mut Trace| {
        one.threads.push(Thread { pid: 7, ..thread(9, None, 1, 92) });
    };
    assert_eq!(ended(2, Some(91), other), Some((91, Some(3))));
    assert_eq!(ended(2, None, other), None);
    let alone = |one: &mut Trace| drop(one.threads.remove(1));
    assert_eq!(ended(2, None, alone), Some((92, Some(3))));
    assert_eq!(ended(2, Some(91), alone), Some((91, Some(3))), "it was there to be joined before");
}
