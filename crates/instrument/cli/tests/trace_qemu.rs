//! What `mayfly trace` records of QEMU, held against what strace sees of another run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Write, stderr};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[path = "common/traces.rs"]
mod common;

use common::{has_tracefs, scratch, wait_for};

/// KVM's calls but runs, of each descriptor in order. One that was interrupted is left out: QEMU makes it again, and how
/// often that happens is the host's. `KVM_CREATE_VM` is interrupted where the kernel has something for its thread to do.
type Calls = BTreeMap<i64, Vec<String>>;

fn is_there(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Whether a thread of the process is inside of `KVM_RUN`.
fn is_in_guest(pid: &str) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        call.split(' ').nth(2) == Some("0xae80")
    })
}

/// Runs QEMU under something that follows it, and has it quit when it has been in its guest for a while.
fn followed(mut by: Command, vcpus: u32) {
    let pid_file = scratch(&format!("qemu-{vcpus}.pid"));
    let pid_path = pid_file.to_str().unwrap();
    let vcpus = vcpus.to_string();
    by.args(["qemu-system-x86_64", "-accel", "kvm", "-M", "microvm", "-nodefaults", "-display"]);
    by.args(["none", "-monitor", "stdio", "-smp", &vcpus, "-pidfile", pid_path]);
    by.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut follower = by.spawn().unwrap();
    let pid = || fs::read_to_string(&pid_file).unwrap_or_default();
    wait_for("QEMU does not enter its guest", || is_in_guest(pid().trim()));
    std::thread::sleep(Duration::from_millis(300));
    follower.stdin.take().unwrap().write_all(b"quit\n").unwrap();
    assert!(follower.wait().unwrap().success());
}

fn by_mayfly(recorder: &str, vcpus: u32) -> Calls {
    let json = scratch(&format!("qemu-{recorder}-{vcpus}.json"));
    let mut mayfly = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    mayfly.args(["trace", "--quiet", "--recorder", recorder, "--json"]).arg(&json).arg("--");
    followed(mayfly, vcpus);
    let trace: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(trace["phases"].as_array().unwrap().iter().any(|one| one["name"] == "first entry"));
    let mut calls = Calls::new();
    for call in trace["calls"].as_array().unwrap() {
        let name = call["name"].as_str().unwrap();
        let interrupted = call["result"] == -i64::from(libc::EINTR);
        if name.starts_with("KVM_") && name != "KVM_RUN" && !interrupted {
            calls.entry(call["fd"].as_i64().unwrap()).or_default().push(name.to_owned());
        }
    }
    calls
}

fn by_strace(vcpus: u32) -> Calls {
    let log = scratch(&format!("qemu-{vcpus}.strace"));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", "trace=ioctl", "-o"]).arg(&log).arg("--");
    followed(strace, vcpus);
    calls_of(&fs::read_to_string(&log).unwrap())
}

/// The calls of a log of strace's, which has one in two lines where another thread's come between.
fn calls_of(log: &str) -> Calls {
    let mut calls = Calls::new();
    let mut begun: BTreeMap<&str, i64> = BTreeMap::new();
    for line in log.lines() {
        let thread = line.split(' ').next().unwrap_or_default();
        let interrupted = line.contains(" = -1 EINTR ");
        if line.contains("<... ioctl resumed>") {
            if let Some(fd) = begun.remove(thread).filter(|_| interrupted) {
                calls.get_mut(&fd).unwrap().pop();
            }
            continue;
        }
        let Some((_, call)) = line.split_once("ioctl(") else { continue };
        let Some((fd, rest)) = call.split_once(", ") else { continue };
        // One number may have two names: "KVM_SET_PIT2 or KVM_SET_VCPU_EVENTS".
        let names = rest.split([',', ')', '<']).next().unwrap_or_default().trim();
        if names.contains("KVM_") && names != "KVM_RUN" && !interrupted {
            let fd = fd.parse().unwrap();
            calls.entry(fd).or_default().push(names.to_owned());
            if line.ends_with("<unfinished ...>") {
                begun.insert(thread, fd);
            }
        }
    }
    calls
}

#[test]
fn a_call_that_was_interrupted_is_made_again_and_counts_once() {
    let log = "\
7  ioctl(3, KVM_CREATE_VM, 0)  = -1 EINTR (Interrupted system call)
7  ioctl(3, KVM_CREATE_VM, 0 <unfinished ...>
8  ioctl(9, KVM_RUN <unfinished ...>
8  ioctl(9, KVM_IRQFD, 0x7f <unfinished ...>
7  <... ioctl resumed>)  = -1 EINTR (Interrupted system call)
8  <... ioctl resumed>)  = 0
7  ioctl(3, KVM_CREATE_VM, 0)  = 9
";
    let calls = [(3, "KVM_CREATE_VM"), (9, "KVM_IRQFD")];
    assert_eq!(calls_of(log), calls.map(|(fd, name)| (fd, vec![name.to_owned()])).into());
}

/// Whether the calls are the same, name by name; all of them, or as many as both have.
fn agree(ours: &Calls, theirs: &Calls) {
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    let count: usize = ours.values().map(Vec::len).sum();
    assert!(count > 100, "{count}");
    for (fd, names) in ours {
        for (number, (ours, theirs)) in names.iter().zip(&theirs[fd]).enumerate() {
            let one_of = theirs.split(" or ").any(|name| name == ours);
            assert!(one_of, "call {number} on {fd} is {ours}, and strace says {theirs}");
        }
    }
}

#[test]
fn the_calls_of_qemu_are_those_that_strace_sees() {
    let kvm = fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    if !kvm || !is_there("qemu-system-x86_64") || !is_there("strace") {
        let _ = writeln!(
            stderr(),
            "not run: QEMU's calls beside strace's take /dev/kvm, QEMU and strace"
        );
        return;
    }
    let (ours, theirs) = (by_mayfly("ptrace", 1), by_strace(1));
    agree(&ours, &theirs);
    for (fd, names) in &ours {
        assert_eq!(names.len(), theirs[fd].len(), "on {fd}");
    }
    // What several vCPUs do at the same time may be cut off elsewhere.
    let theirs = by_strace(2);
    agree(&by_mayfly("ptrace", 2), &theirs);
    if has_tracefs() {
        assert_eq!(by_mayfly("tracefs", 1), ours);
        agree(&by_mayfly("tracefs", 2), &theirs);
    } else {
        let _ = writeln!(stderr(), "not run in part: there is no tracefs here");
    }
}

/// The end of QEMU's q35, as a recorder tells it: the codes of the causes of what comes after the last exit.
fn ends_of_q35(recorder: &str, signal: Option<Signal>) -> Vec<Value> {
    let (json, pid_file) = (scratch(&format!("q35-{recorder}.json")), scratch("q35.pid"));
    let mut mayfly = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    mayfly.args(["trace", "--quiet", "--recorder", recorder, "--json"]).arg(&json).arg("--");
    mayfly.args(["qemu-system-x86_64", "-accel", "kvm", "-M", "q35", "-nodefaults", "-display"]);
    mayfly.args(["none", "-monitor", "stdio", "-pidfile", pid_file.to_str().unwrap()]);
    mayfly.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut mayfly = mayfly.spawn().unwrap();
    let pid = || fs::read_to_string(&pid_file).unwrap_or_default();
    wait_for("QEMU does not enter its guest", || is_in_guest(pid().trim()));
    let mut input = mayfly.stdin.take().unwrap();
    match signal {
        None => input.write_all(b"quit\n").unwrap(),
        Some(signal) => {
            let pid = Pid::from_raw(pid().trim().parse().unwrap()).unwrap();
            kill_process(pid, signal).unwrap();
        }
    }
    mayfly.wait().unwrap();
    let trace: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let took: u64 =
        trace["phases"].as_array().unwrap().iter().map(|one| one["took"].as_u64().unwrap()).sum();
    assert_eq!(Some(took), trace["span"].as_u64(), "the phases are all of the trace");
    let stalls = trace["stalls"].as_array().unwrap().iter();
    stalls.filter(|one| one["what"] == "the end of the process").cloned().collect()
}

#[test]
fn what_holds_up_the_end_of_q35_is_named_however_it_ends() {
    let kvm = fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    if !kvm || !is_there("qemu-system-x86_64") {
        let _ = writeln!(stderr(), "not run: the end of QEMU's q35 takes /dev/kvm and QEMU");
        return;
    }
    let recorders: &[&str] = if has_tracefs() { &["ptrace", "tracefs"] } else { &["ptrace"] };
    for recorder in recorders {
        let mut named = Vec::new();
        for signal in [None, None, Some(Signal::TERM), Some(Signal::KILL)] {
            for end in ends_of_q35(recorder, signal) {
                // Where others have the processors, the end may be theirs, or nothing was seen of it.
                let code = end["cause"]["code"].as_str().unwrap_or("unexplained").to_owned();
                let mut is_right = vec!["vm-destruction", "busy-processor", "unexplained"];
                // A VM that waits for a grace period waits for three ticks at least. Of a shorter end, most may be the memory's.
                if end["ticks"].as_f64().unwrap() < 2.5 {
                    is_right.push("memory-freed-at-exit");
                }
                assert!(is_right.contains(&code.as_str()), "{recorder}, {signal:?}: {end}");
                named.push(code);
            }
        }
        let is_named = named.iter().any(|code| code == "vm-destruction");
        assert!(named.is_empty() || is_named, "{recorder}: {named:?}");
    }
}
