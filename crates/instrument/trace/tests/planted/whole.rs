//! The phases of a trace are all of its time, however it was recorded and however the program ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use mayfly_record::Host;
use mayfly_trace::{
    Beginning, Choice, Error, Mark, Phase, Probe, Recorder, Trace, attach_by, record_by,
};

use crate::{launch, planted, traced_by};

/// Lives that end in different ways.
const LIVES: [&[&str]; 4] =
    [&[], &["irqchip=1", "abandon=1"], &["hold=30"], &["leave=64", "unmap=8"]];

fn assert_whole(trace: &Trace, life: &[&str]) {
    let took: u64 = trace.phases.iter().map(|phase| phase.took).sum();
    assert_eq!(took, trace.span, "{} {life:?}: {:?}", trace.recorder, trace.phases);
    let last = trace.phases.last().map(|phase| phase.at);
    assert_eq!(last, Some(trace.span), "{} {life:?}", trace.recorder);
}

pub(crate) fn of_a_program() {
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        for life in LIVES {
            let trace = match traced_by(choice, &launch(life)) {
                Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
                traced => traced.unwrap(),
            };
            assert_whole(&trace, life);
            // The span ends with the last process, and the recorder's own wait for the program is there to compare.
            let gone = trace.processes.iter().filter_map(|one| one.gone).max();
            assert_eq!(gone, Some(trace.span), "{:?}", trace.processes);
            let program = &trace.processes[0];
            let begun = trace.threads.iter().filter(|one| one.pid == program.pid);
            let begun = begun.filter_map(|one| one.ending).max();
            assert!(begun.is_some() && begun <= program.gone, "{:?}", trace.processes);
            assert!(program.gone <= program.waited, "{:?}", trace.processes);
            // Whoever of it destroys the VM does so before it is waited for.
            let is_its =
                |tid: i32| trace.threads.iter().any(|one| one.tid == tid && one.pid == program.pid);
            let looks = trace.samples.iter().filter(|one| is_its(one.tid));
            let looks = looks.filter(|one| one.stack.iter().any(|at| at == "kvm_destroy_vm"));
            let destroys = looks.map(|one| one.at + one.took).max();
            assert!(destroys <= program.waited, "{destroys:?} {:?}", trace.processes);
        }
    }
}

/// The remainder is the other program's that the first one started, and does not wait for.
pub(crate) fn of_a_program_that_leaves_another_behind() {
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        let script = r#""$0" & exec sleep 0.3"#;
        let mut launch = launch(&[]);
        let vmm = launch.command[0].clone();
        launch.command = ["sh", "-c", script].map(Into::into).into();
        launch.command.push(vmm);
        let trace = match traced_by(choice, &launch) {
            Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
            traced => traced.unwrap(),
        };
        assert_whole(&trace, &["left behind"]);
        let names: Vec<&str> = trace.phases.iter().map(|phase| &phase.name[..]).collect();
        assert_eq!(names.last(), Some(&"trace ended"), "{names:?}");
    }
}

pub(crate) fn of_a_process_that_runs() {
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        let mut program =
            Command::new(planted()).args(["sleep=1500"]).stdout(Stdio::null()).spawn().unwrap();
        sleep(Duration::from_millis(100));
        let recorded = match attach_by(choice, program.id().cast_signed(), &mut |_| {}) {
            Err(Error::NoTracefs(why)) => {
                program.wait().unwrap();
                return println!("not run: {why}");
            }
            recorded => recorded.unwrap(),
        };
        program.wait().unwrap();
        let trace = recorded.trace.concluded(Host::gather(["test".to_owned()]));
        if choice == Choice::Ptrace {
            assert_eq!(trace.recorder, Recorder::PtraceEveryCall);
        }
        assert_whole(&trace, &["attached"]);
    }
}

pub(crate) fn of_a_vm_that_outlives_its_process() {
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        let trace = match traced_by(choice, &launch(&["hold=60"])) {
            Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
            traced => traced.unwrap(),
        };
        let at = |name: &str| trace.phases.iter().position(|phase: &Phase| phase.name == name);
        let (gone, closed) = (at("process gone"), at("VM closed elsewhere"));
        assert!(gone.is_some() && closed > gone, "{:?}", trace.phases);
    }
}

/// What a client takes before it asks for the VM is not the VMM's start.
pub(crate) fn start_after_a_request() {
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        let trace = match traced_by(choice, &launch(&["client=60"])) {
            Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
            traced => traced.unwrap(),
        };
        let from = trace.from.as_ref().expect("it waits for a client");
        let accept = trace.calls.iter().find(|call| call.name == "accept").unwrap();
        let create = trace.calls.iter().find(|call| call.name == "KVM_CREATE_VM").unwrap();
        assert!(from.event == "socket" && from.at >= accept.end() && from.at <= create.at);
        assert_eq!(trace.start(), Some(trace.first_entry().unwrap() - from.at));
        assert!(trace.stalls.iter().all(|stall| stall.what != "accept"), "{:?}", trace.stalls);
        assert_whole(&trace, &["client"]);
    }
}

pub(crate) fn start_after_a_marker() {
    let marker = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("marker");
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        let _ = fs::remove_file(&marker);
        let script = r#"sleep 0.1; echo now > "$1"; sleep 0.1; exec "$0""#;
        let mut launch = launch(&[]);
        let vmm = launch.command[0].clone();
        launch.command = ["sh", "-c", script].map(Into::into).into();
        launch.command.extend([vmm, marker.clone().into()]);
        launch.marker = Some(Mark::File(marker.clone()));
        let recorded = match record_by(choice, &launch, &mut |line| panic!("{line}")) {
            Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
            recorded => recorded.unwrap(),
        };
        let host = Host::gather(["test".to_owned()]);
        let trace = recorded.trace.concluded_from(host, &Beginning::File(marker.clone()));
        let from = trace.from.as_ref().expect("it was written to");
        let create = trace.calls.iter().find(|call| call.name == "KVM_CREATE_VM").unwrap();
        assert!(from.event == "file" && from.at > 100_000_000 && from.at < create.at, "{from:?}");
        assert_whole(&trace, &["marker"]);
    }
}

pub(crate) fn start_after_a_probe() {
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("probe.log");
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        let mut launch = launch(&["asked=50", &format!("log={}", log.display())]);
        let path = PathBuf::from(&launch.command[0]);
        let probe = Probe { path, provider: "planted".into(), name: "asked".into() };
        launch.marker = Some(Mark::Probe(probe.clone()));
        let recorded = match record_by(choice, &launch, &mut |line| panic!("{line}")) {
            Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
            Err(error) if error.to_string().contains("cannot be seen") => {
                return println!("not run: {error}");
            }
            recorded => recorded.unwrap(),
        };
        let host = Host::gather(["test".to_owned()]);
        let trace = recorded.trace.concluded_from(host, &Beginning::Probe(probe.clone()));
        let from = trace.from.as_ref().expect("it came to its probe");
        let create = trace.calls.iter().find(|call| call.name == "KVM_CREATE_VM").unwrap();
        assert!(from.event == "usdt" && from.at > 50_000_000 && from.at < create.at, "{from:?}");
        assert_whole(&trace, &["probe"]);
        let told = fs::read_to_string(&log).unwrap();
        assert!(told.lines().any(|line| line == "listened 1"), "{told}");
        // One that is not there is said before the program is started.
        launch.marker = Some(Mark::Probe(Probe { name: "other".into(), ..probe }));
        fs::remove_file(&log).unwrap();
        let error = record_by(choice, &launch, &mut |line| panic!("{line}")).unwrap_err();
        assert!(error.to_string().contains("no such probe") && !log.exists(), "{error}");
    }
}
