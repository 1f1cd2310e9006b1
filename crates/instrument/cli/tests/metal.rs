//! `mayfly run --backend metal` as a process, with a QEMU that only says what one would, and with none.

#[path = "host/common.rs"]
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use mayfly_lifecycle_steps::{
    Architecture, Course, Executed, Line, Phase, REGISTERS, Row, Spent, Until,
};
use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::Value;

use common::{mayfly, ran, scratch, send, text, wait_until};

/// Says on its serial line what is in the file `console` beside it; but on Cortex-A72 does what `$ON_A72` says.
const QEMU: &str = r#"#!/bin/sh
here=$(dirname "$0")
while [ $# -gt 0 ]; do
    case $1 in
        -cpu) processor=$2 ;;
        -serial) serial=${2#file:} ;;
        --version) echo "QEMU emulator version 7.2.22" ;;
    esac
    shift
done
[ "${processor-}" != cortex-a72 ] || eval "$ON_A72"
[ -z "${serial-}" ] || cp "$here/console" "$serial"
"#;

/// What both sides say: each step takes as much.
fn console() -> String {
    console_on(Architecture::Arm64)
}

fn console_on(architecture: Architecture) -> String {
    let measured = measured_on(architecture, Course::Lives);
    format!("mayfly-beside-kvm linux 6.12.1\r\n{REGISTERS}midr_el1=0x1\r\n{measured}")
}

/// The same of another course: KVM by two ways, and one that is left out, for this reason.
fn by_ways_console(course: Course, two: [&str; 2], left_out: &str, why: &str) -> String {
    let (measured, way, [one, other]) = (measured(course), "mayfly-beside-kvm way", two);
    format!(
        "mayfly-beside-kvm linux 6.12.1\r\n{REGISTERS}midr_el1=0x1\r\n{measured}{way} {one}\r\n{measured}\
         {way} {other}\r\n{measured}{way} {left_out}\r\nmayfly: {why}\r\n"
    )
}

fn measured(course: Course) -> String {
    measured_on(Architecture::Arm64, course)
}

fn measured_on(architecture: Architecture, course: Course) -> String {
    let line = |row: Row, until| {
        let once = if row == Row::Nothing { 0 } else { 1000 * (1 + row.asks()) };
        let spent = Spent { levels: [0, 0, once], nanoseconds: once };
        format!("{}\r\n", Line { row, until, times: 1, spent })
    };
    let all =
        Row::of(course, architecture).flat_map(|row| Until::ALL.map(|until| line(row, until)));
    let all: Vec<String> = all.collect();
    let end = Line::end(all.len() as u32);
    format!("{}\r\n{}{end}\r\n", Line::BEGIN, all.concat())
}

/// A directory for a test, with such a QEMU, what is booted, and for temporary files.
fn directory(test: &str) -> PathBuf {
    let path = scratch(&format!("metal-{test}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(path.join("temporary")).unwrap();
    let qemu = path.join("qemu-system-aarch64");
    fs::write(&qemu, QEMU).unwrap();
    fs::set_permissions(qemu, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(path.join("console"), console()).unwrap();
    for file in ["mayfly.bin", "vmlinuz", "busybox", "mayfly"] {
        fs::write(path.join(file), file).unwrap();
    }
    path
}

fn run(directory: &Path, on_a72: &str, more: &[&str]) -> Command {
    let mut run = without_rounds(directory, more);
    run.args(["--rounds", "1"]).env("ON_A72", on_a72);
    run
}

fn without_rounds(directory: &Path, more: &[&str]) -> Command {
    let mut run = mayfly(&["run", "--backend", "metal", "--machine-files"]);
    run.arg(directory).arg("--json").arg(directory.join("r.json")).args(more);
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    run.env("PATH", path).env("TMPDIR", directory.join("temporary")).env("ON_A72", "");
    run
}

fn record(directory: &Path) -> Option<Value> {
    Some(common::record(&fs::read(directory.join("r.json")).ok()?))
}

fn processors(record: &Value) -> Vec<&str> {
    let rows = record["results"].as_array().unwrap().iter();
    let mut all: Vec<&str> = rows.map(|row| row["params"]["processor"].as_str().unwrap()).collect();
    all.dedup();
    all
}

fn ended(child: Child) -> (Output, String) {
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr).to_owned();
    (output, said)
}

/// Nothing is left of what is temporary.
fn assert_clean(directory: &Path) {
    let left: Vec<_> = fs::read_dir(directory.join("temporary")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn all_processors_are_told_of_and_kept() {
    let directory = directory("both");
    let (_, said, code) = ran(run(&directory, "", &[]));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("about 3 min, 1 GiB of memory; changes nothing on this host\n"),
        "{said}"
    );
    let record = record(&directory).unwrap();
    assert_eq!(processors(&record), ["max", "neoverse-n1", "cortex-a72"]);
    let found = record["results"][0]["findings"].to_string();
    assert!(found.contains("7.2.22") && found.contains("midr_el1=0x1"), "{found}");
    assert!(record["partial"].is_null());
    assert_clean(&directory);
}

#[test]
fn on_a_pc_mayfly_ends_with_the_status_of_the_device_that_powers_it_off() {
    let directory = directory("pc");
    let files = directory.join("x86_64");
    fs::create_dir_all(&files).unwrap();
    for file in
        ["mayfly.bin", "vmlinuz", "busybox", "mayfly", "irqbypass.ko", "kvm.ko", "kvm-amd.ko"]
    {
        fs::write(files.join(file), file).unwrap();
    }
    let qemu = directory.join("qemu-system-x86_64");
    let ends = "case \"$all\" in *mayfly.bin*isa-debug-exit* | *isa-debug-exit*mayfly.bin*) exit 1 ;; esac\n";
    fs::write(&qemu, QEMU.replace("here=", "all=$*\nhere=") + ends).unwrap();
    fs::set_permissions(qemu, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.join("console"), console_on(Architecture::X86)).unwrap();
    let (out, said, code) = ran(run(&directory, "", &["--processor", "EPYC"]));
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("QEMU's clock") && out.contains("cpuid"), "{out}");
    let record = record(&directory).unwrap();
    assert_eq!(processors(&record), ["EPYC"]);
    let metrics = record["results"][0]["metrics"].to_string();
    assert!(metrics.contains("caller_virtual") && !metrics.contains("el2"), "{metrics}");
    assert_clean(&directory);
}

#[test]
fn a_dirty_log_is_counted_by_each_way_that_the_kernel_has() {
    let directory = directory("logged");
    let why = "KVM_ENABLE_CAP: Invalid argument";
    let console = by_ways_console(Course::DirtyLog, ["write-protect", "ring"], "eager-split", why);
    fs::write(directory.join("console"), console).unwrap();
    let max = ["dirty-log", "--processor", "max"];
    let (out, said, code) = ran(run(&directory, "", &max));
    assert_eq!(code, Some(0), "{said}");
    let record = record(&directory).unwrap();
    let rows = record["results"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["experiment"] == "dirty-log"));
    let mut variants: Vec<_> = rows.iter().map(|row| row["variant"].as_str().unwrap()).collect();
    variants.dedup();
    let both = ["kvm-write-protect", "kvm-ring", "kvm-lean-write-protect", "kvm-lean-ring"];
    assert_eq!(variants, [&["mayfly"][..], &both].concat());
    assert!(out.contains("the whole course of a dirty log"), "{out}");
    assert!(out.contains("; log-started-4k (initially-set"), "each takes as much: {out}");
    assert_clean(&directory);

    let both = ["dirty-log", "lives"];
    let (_, said, code) = ran(run(&directory, "", &both));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("one experiment runs"), "{said}");
}

#[test]
fn forks_are_counted_by_each_way_whose_forks_are_as_they_should_be() {
    let directory = directory("forked");
    let why = "by prefetch, a fork has 7 pages that are not its own";
    let console = by_ways_console(Course::Fork, ["map-private", "copy"], "prefetch", why);
    fs::write(directory.join("console"), console).unwrap();
    let (out, said, code) = ran(run(&directory, "", &["fork", "--processor", "max"]));
    assert_eq!(code, Some(0), "{said}");
    let record = record(&directory).unwrap();
    let rows = record["results"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["experiment"] == "fork"));
    let mut variants: Vec<_> = rows.iter().map(|row| row["variant"].as_str().unwrap()).collect();
    variants.dedup();
    let all = ["mayfly", "kvm-map-private", "kvm-copy", "kvm-lean-map-private", "kvm-lean-copy"];
    assert_eq!(variants, all);
    assert!(out.contains("of KVM by map-private"), "{out}");
    assert!(out.contains(&format!("kvm-prefetch: mayfly: {why}")), "{out}");
    assert_clean(&directory);

    let (_, said, code) = ran(run(&directory, "", &["fork", "--forks", "10"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("with --backend metal, accepted are"), "{said}");
}

/// What both sides say of guests: what is executed at EL2 is the same, and KVM's VMM executes more.
fn devices_console() -> String {
    let phase = |name, vmm| {
        let executed = Executed { vmm, el1: 0, el2: 1000, guest: 10 };
        format!("{}\r\n", Phase { name, executed, nanoseconds: 2000 })
    };
    let phases = [
        "vmm-alone",
        "boot",
        "ready",
        "nothing",
        "disk-write-4k",
        "disk-read-4k",
        "request-1",
        "request-1500",
        "bulk-64m",
        "off",
    ];
    let phases = phases.map(|name| phase(name, 500)).concat();
    format!(
        "mayfly-beside-kvm linux 6.12.1\r\n{REGISTERS}midr_el1=0x1\r\n{phases}\
         guest: Linux 6.12.1 has 4 CPUs, a disk of 32768 sectors and the card 52:54:00:12:34:01\r\n\
         guest: Linux 6.12.1 has 1 CPUs, a disk of 32768 sectors and the card 52:54:00:12:34:01\r\n\
         linux: 24 exits: hvc\r\nlinux: of the exits to devices, 71 gicd\r\nmayfly: nothing was lost\r\n\
         {{ ret: 0, esr_ec: 0 }} hitcount: 7\r\n{{ ret: 2, esr_ec: 22 }} hitcount: 5\r\n\
         {{ gpa: 9000018, type: 0 }} hitcount: 20\r\n"
    )
}

#[test]
fn guests_are_counted_beside_those_of_a_vmm_and_what_is_lost_is_said() {
    let directory = directory("devices");
    fs::write(directory.join("console"), devices_console()).unwrap();
    let max = ["devices", "--processor", "max"];
    let (_, said, code) = ran(without_rounds(&directory, &max));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("tun.ko: make metal-run ARGS=devices fetches"), "{said}");

    for folder in ["modules", "vmm"] {
        fs::create_dir(directory.join(folder)).unwrap();
    }
    for name in ["tun", "tap", "vhost_iotlb", "vhost", "vhost_net", "llc", "stp", "bridge"] {
        fs::write(directory.join(format!("modules/{name}.ko")), name).unwrap();
    }
    for name in ["qemu-system-aarch64", "ld-linux-aarch64.so.1", "version"] {
        fs::write(directory.join("vmm").join(name), "10.0.13\n").unwrap();
    }
    let (_, said, code) = ran(without_rounds(&directory, &max));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("mayfly-traffic: make metal-run ARGS=devices fetches"), "{said}");
    fs::write(directory.join("mayfly-traffic"), "").unwrap();
    let (out, said, code) = ran(without_rounds(&directory, &max));
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("with QEMU 10.0.13") && out.contains("except in boot"), "{out}");
    let record = record(&directory).unwrap();
    let rows = record["results"].as_array().unwrap();
    // Three sides, of six steps each.
    assert_eq!(rows.len(), 18);
    let of = |row: &Value, metric: &str| row["metrics"][metric]["p50"].as_u64();
    let kvm =
        rows.iter().find(|row| row["variant"] == "kvm" && row["params"]["step"] == "boot").unwrap();
    assert_eq!((of(kvm, "hypervisor"), of(kvm, "el2")), (Some(1500), Some(1000)));
    assert_eq!(kvm["counters"]["device_pl011"], 20);
    assert_clean(&directory);

    let (_, said, code) = ran(run(&directory, "", &max));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--rounds has no effect"), "{said}");
}

#[test]
fn a_machine_that_fails_costs_nothing_of_what_was_done_before() {
    let directory = directory("fails");
    let (out, said, code) = ran(run(&directory, "echo no such processor >&2; exit 1", &[]));
    assert_eq!(code, Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("mayfly: cortex-a72, mayfly: ") && last.contains("no such"), "{last}");
    let record = record(&directory).unwrap();
    assert_eq!(processors(&record), ["max", "neoverse-n1"]);
    assert!(record["partial"].as_str().unwrap().contains("no such processor"), "{record}");
    assert!(out.contains("vm-created"));
    assert_clean(&directory);
}

#[test]
fn a_machine_that_somebody_ends_is_said_to_have_been() {
    let directory = directory("ended");
    let ends = "echo qemu: terminating on signal 15 from pid 7 >&2; exit 0";
    // Once, however often it is named.
    let named = ["--processor", "neoverse-n1,cortex-a72,neoverse-n1"];
    let (_, said, code) = ran(run(&directory, ends, &named));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("QEMU was ended: qemu: terminating on signal 15"), "{said}");
    assert_eq!(said.matches("mayfly: neoverse-n1: ").count(), 1, "{said}");
    assert_eq!(processors(&record(&directory).unwrap()), ["neoverse-n1"]);
}

#[test]
fn where_nothing_was_done_an_earlier_record_stays() {
    let directory = directory("stays");
    fs::write(directory.join("r.json"), "{}").unwrap();
    let a72 = ["--processor", "cortex-a72"];
    let (out, _, code) = ran(run(&directory, "exit 1", &a72));
    assert_eq!((code, &out[..]), (Some(1), ""));
    assert_eq!(record(&directory).unwrap(), serde_json::json!({}));
    assert_clean(&directory);
}

#[test]
fn who_interrupts_it_has_what_was_done_and_no_qemu_is_left() {
    for (number, signal) in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().enumerate() {
        let directory = directory(&format!("interrupted-{number}"));
        let (child, qemu) = hanging(run(&directory, &hangs(&directory), &[]), &directory);
        send(&child, signal);
        let (output, said) = ended(child);
        assert_eq!(output.status.signal(), Some(signal.as_raw()), "{said}");
        let last = said.lines().last().unwrap();
        assert!(last.ends_with(": cortex-a72 was not finished"), "{last}");
        assert_eq!(processors(&record(&directory).unwrap()), ["max", "neoverse-n1"]);
        assert!(test_kill_process(qemu).is_err(), "{qemu:?} is there still");
        assert_clean(&directory);
    }
}

#[test]
fn who_starts_it_to_ignore_a_signal_is_not_interrupted_by_it() {
    let directory = directory("ignored");
    let mut run = run(&directory, &hangs(&directory), &[]);
    let ignore = || {
        // SAFETY: `signal` is async-signal-safe.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: it calls what is async-signal-safe alone, and allocates nothing.
    unsafe { run.pre_exec(ignore) };
    let (child, qemu) = hanging(run, &directory);
    send(&child, Signal::HUP);
    sleep(Duration::from_millis(500));
    test_kill_process(qemu).expect("it runs on");
    send(&child, Signal::TERM);
    let (output, said) = ended(child);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{said}");
}

/// What has a machine say nothing, and never end.
fn hangs(directory: &Path) -> String {
    format!("echo $$ >'{}'; exec sleep 1000", directory.join("pid").display())
}

/// Runs it until such a machine is there; gives that one's number, too.
fn hanging(mut run: Command, directory: &Path) -> (Child, Pid) {
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut number = None;
    wait_until(|| {
        let text = fs::read_to_string(directory.join("pid")).unwrap_or_default();
        number = text.trim().parse().ok();
        number.is_some()
    });
    (child, Pid::from_raw(number.unwrap()).unwrap())
}

#[test]
fn without_qemu_nothing_can_run() {
    let directory = directory("none");
    let mut run = run(&directory, "", &[]);
    run.env("PATH", "/nowhere");
    let (_, said, code) = ran(run);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("there is no qemu-system-aarch64 here"), "{said}");
    assert_eq!((said.lines().count(), record(&directory)), (1, None));
}
