use super::*;
use crate::record::{Object, Process, Thread};

const MS: u64 = 1_000_000;

fn call(tid: i32, name: &str, at: u64, took: u64, on: Object) -> Call {
    let (at, took, on) = (at * MS, Some(took * MS), Some(on));
    Call { tid, pid: 1, at, took, name: name.into(), on, result: Some(0), ..Call::default() }
}

fn created(vm: usize, at: u64) -> Call {
    let mut call = call(1, "KVM_CREATE_VM", at, 1, Object::Kvm);
    call.arguments.insert("vm".to_owned(), vm as u64);
    call
}

/// A VM whose vCPU runs on a thread of its own, from `at` + 10 to `to`; it is closed 3 ms later.
fn vm(vm: usize, tid: i32, at: u64, to: u64) -> Vec<Call> {
    vec![
        created(vm, at),
        call(1, "KVM_CREATE_VCPU", at + 4, 1, Object::Vm { vm }),
        call(tid, "KVM_RUN", at + 10, to - at - 10, Object::Vcpu { vm, id: 0 }),
        call(1, "close", to + 2, 1, Object::Vm { vm }),
    ]
}

fn thread(tid: i32, at: u64, gone: u64) -> Thread {
    let (ending, gone) = (Some(gone * MS), Some(gone * MS));
    Thread { tid, pid: 1, at: at * MS, ending, gone, vcpu: tid > 1, ..Thread::default() }
}

/// A program with two VMs, one after the other, and a third that is never entered.
fn two() -> Trace {
    let mut calls = [vm(0, 2, 20, 60), vm(1, 3, 70, 130), vec![created(2, 2)]].concat();
    calls.sort_by_key(|call| call.at);
    let executed = vec![(MS, "/vmm".to_owned())];
    let gone = Some(200 * MS);
    Trace {
        span: 200 * MS,
        processes: vec![Process { pid: 1, gone, executed, ..Process::default() }],
        threads: vec![thread(1, 0, 200), thread(2, 25, 61), thread(3, 75, 131)],
        calls,
        ..Trace::default()
    }
}

#[test]
fn each_vm_of_a_program_has_phases_of_its_own_that_are_all_of_its_life() {
    let lives = two().find_lives();
    let told: Vec<_> = lives
        .iter()
        .map(|one| {
            let ends: Vec<_> =
                one.phases.iter().map(|phase| (&phase.name[..], phase.at / MS)).collect();
            let whole: u64 = one.phases.iter().map(|phase| phase.took).sum();
            assert_eq!(whole, one.took);
            (one.vm, one.at / MS, one.start / MS, one.stop.map(|stop| stop / MS), ends)
        })
        .collect();
    let ends = |at: u64, to: u64| {
        vec![
            ("VM created", at + 1),
            ("vCPUs", at + 5),
            ("first entry", at + 10),
            ("last exit", to + 1),
            ("threads joined", to + 1),
            ("fds closed", to + 3),
        ]
    };
    let expected = [(0, 20, 10, Some(2), ends(20, 60)), (1, 70, 10, Some(2), ends(70, 130))];
    assert_eq!(told, expected);
}

#[test]
fn each_vm_of_a_program_has_paths_of_its_own() {
    let lives = two().find_lives();
    let told = lives[1].critical_paths.iter();
    let told: Vec<_> = told.map(|path| (&path.to[..], path.at / MS, path.took / MS)).collect();
    assert_eq!(told, [("first entry", 70, 10), ("fds closed", 131, 2)]);
}

#[test]
fn a_program_with_one_vm_that_was_entered_has_no_lives_beside_its_phases() {
    let mut trace = two();
    trace.calls.retain(|call| call.tid != 3);
    assert!(trace.find_lives().is_empty());
}

#[test]
fn a_vm_with_a_process_of_its_own_begins_with_its_program_and_ends_with_it() {
    let mut trace = two();
    for call in trace.calls.iter_mut().filter(|call| call.at >= 70 * MS) {
        call.pid = 5;
    }
    trace.calls.retain(|call| call.pid != 5 || call.name != "close");
    trace.threads[2].pid = 5;
    let executed = vec![(66 * MS, "/vmm".to_owned())];
    let gone = Some(140 * MS);
    trace.processes.push(Process { pid: 5, at: 65 * MS, gone, executed, ..Process::default() });
    let life = &trace.find_lives()[1];
    assert_eq!((life.pid, life.at / MS, life.start / MS, life.took / MS), (5, 66, 14, 74));
    assert_eq!(life.phases.last().map(|phase| &phase.name[..]), Some("process gone"));
}
