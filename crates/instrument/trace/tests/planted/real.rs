//! Waits of every kind happen, and are listed with what is known of them. Whether one is long is this host's, so what the
//! program or the kernel measured says whether there is something to be listed.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::id;

use mayfly_trace::{Call, Choice, Error, Launch, Stall, Trace};

use crate::{is_soon_so, launch, planted, traced_by};

const MS: u64 = 1_000_000;

/// Traces a plan by both recorders, and looks at what each says.
fn each(arguments: &[&str], look: impl Fn(&Trace)) {
    each_of(&launch(arguments), look);
}

fn each_of(launch: &Launch, look: impl Fn(&Trace)) {
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        match traced_by(choice, launch) {
            Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
            traced => look(&traced.unwrap()),
        }
    }
}

fn code(stall: &Stall) -> Option<&str> {
    stall.cause.as_ref().map(|cause| &cause.code[..])
}

/// How long all waits with a cause took, in nanoseconds.
fn took(trace: &Trace, wanted: &str) -> u64 {
    let named = trace.stalls.iter().filter(|stall| code(stall) == Some(wanted));
    named.map(|stall| stall.took).sum()
}

fn vcpu(trace: &Trace) -> i32 {
    trace.threads.iter().find(|thread| thread.vcpu).unwrap().tid
}

/// What is shorter is no wait, in nanoseconds.
fn least(trace: &Trace) -> u64 {
    let hz = trace.host.as_ref().and_then(|host| host.hz).unwrap_or(250);
    (500_000_000 / u64::from(hz)).clamp(MS, 2 * MS)
}

pub(crate) fn many_short_sleeps() {
    const TIMES: usize = 40;
    each(&[&format!("shorts={TIMES}")], |trace| {
        let is_long = |call: &&Call| call.name == "sleep" && call.took >= Some(least(trace));
        let short = TIMES - trace.calls.iter().filter(is_long).count();
        assert!(took(trace, "own-sleep") >= 10 * MS, "{:?}", trace.stalls);
        // The call may go on for longer than its sleep, if its thread has to wait for a processor then.
        let counts = |stall: &&Stall| {
            let times = stall.what.strip_prefix("sleep, ")?.strip_suffix(" times")?;
            times.parse().ok().filter(|times| (short..=TIMES).contains(times))
        };
        let sum = trace.stalls.iter().find(|stall| counts(stall).is_some());
        // On a busy host each may be a wait by itself.
        let is_named = sum.and_then(code) == Some("own-sleep");
        assert!(short < 20 || is_named, "{} {short} {:?}", trace.recorder, trace.stalls);
    });
}

pub(crate) fn turns_with_another_thread() {
    each(&["turns=40"], |trace| {
        // By ptrace it is the reader, of whom it is not known who wakes it; by tracefs it is whom the reader waits for.
        let is_it =
            |stall: &&Stall| stall.what.starts_with("read") || stall.what.starts_with("sleep");
        let waits = || trace.stalls.iter().filter(is_it);
        let took: u64 = waits().map(|stall| stall.took).sum();
        assert!(
            took >= 20 * MS && waits().all(|stall| stall.cause.is_none()),
            "{:?}",
            trace.stalls
        );
    });
}

pub(crate) fn a_signal_that_stops() {
    each(&["stop=60"], |trace| {
        let stall = trace.stalls.iter().find(|stall| stall.what == "stopped by a signal");
        let stall = stall.unwrap_or_else(|| panic!("{} {:?}", trace.recorder, trace.stalls));
        assert!(stall.took >= 30 * MS && stall.tid == trace.processes[0].pid, "{stall:?}");
        assert_eq!(stall.cause, None);
    });
}

pub(crate) fn a_call_that_another_answers() {
    each(&["notify=60"], |trace| {
        let is_first = |stall: &&Stall| stall.tid == trace.processes[0].pid;
        let stall = trace.stalls.iter().filter(is_first).max_by_key(|stall| stall.took).unwrap();
        assert!(stall.took >= 30 * MS && stall.cause.is_none(), "{stall:?}");
        assert!(stall.known.iter().any(|known| known.contains("seccomp")), "{stall:?}");
    });
}

pub(crate) fn a_journal_of_exits() {
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("journal-{}", id()));
    each(&["exits=60", &format!("log={}", log.display())], |trace| {
        let text = fs::read_to_string(&log).unwrap();
        let written = text.lines().find_map(|line| line.strip_prefix("journal "));
        let micros: u64 = written.unwrap().parse().unwrap();
        if micros < 90_000 {
            return println!("{micros} us for 60 writes are no waits on this host");
        }
        let named = trace.stalls.iter().filter(|stall| code(stall) == Some("blocking-io"));
        let named: Vec<&Stall> = named.collect();
        assert!(!named.is_empty(), "{} {micros} {:?}", trace.recorder, trace.stalls);
        assert!(named.iter().all(|stall| stall.tid == vcpu(trace)), "{named:?}");
        // No more is told than there was, but for what looks do not tell exactly.
        assert!(took(trace, "blocking-io") <= micros * 1500, "{micros} {named:?}");
    });
    fs::remove_file(log).unwrap();
}

pub(crate) fn pages_one_by_one() {
    each(&["pages=150"], |trace| {
        let sum = trace.stalls.iter().find(|stall| code(stall) == Some("serial-userfault"));
        let sum = sum.unwrap_or_else(|| panic!("{} {:?}", trace.recorder, trace.stalls));
        assert_eq!(sum.tid, vcpu(trace));
        // A page takes a millisecond and more, and few as long as a wait, which are listed by themselves.
        let all = took(trace, "serial-userfault") + took(trace, "userfault");
        assert!(all >= 60 * MS, "{:?}", trace.stalls);
    });
}

/// The call that is meant, if it ran so long that it is a wait for certain.
fn long_call(trace: &Trace, is_meant: impl Fn(&Call) -> bool) -> Option<&Call> {
    let ran = |call: &&Call| call.used.is_some_and(|used| used.ran >= 4 * MS);
    let found = trace.calls.iter().filter(|call| is_meant(call)).find(ran);
    if found.is_none() {
        println!("not a wait on this host, or not recorded");
    }
    found
}

/// The cause of a call, if one is named.
fn cause_of<'a>(trace: &'a Trace, call: &Call) -> Option<&'a str> {
    code(trace.stalls.iter().find(|stall| (stall.tid, stall.at) == (call.tid, call.at))?)
}

pub(crate) fn many_mappings() {
    each(&["maps=60000"], |trace| {
        let Some(call) = long_call(trace, |call| call.name == "KVM_CREATE_VM") else { return };
        let named = cause_of(trace, call);
        // By events they are counted later, and may be gone by then.
        let may_be_gone = trace.recorder.name() == "tracefs" && named.is_none();
        assert!(may_be_gone || named == Some("many-mappings"), "{named:?} {:?}", trace.stalls);
    });
}

pub(crate) fn a_dirty_log() {
    each(&["dirty=32"], |trace| {
        let starts =
            |call: &Call| call.name == "KVM_SET_USER_MEMORY_REGION" && call.argument("flags") == 1;
        if let Some(call) = long_call(trace, starts) {
            assert_eq!(cause_of(trace, call), Some("dirty-log"), "{:?}", trace.stalls);
        }
    });
}

pub(crate) fn a_vm_that_is_only_asked() {
    each(&["probe=1"], |trace| {
        let first = trace.calls.iter().find(|call| call.name == "close" && call.vm() == Some(0));
        let close = first.expect("it is closed");
        let used = close.used.unwrap_or_default();
        let slept = close.took.unwrap_or(0).saturating_sub(used.ran + used.queued);
        let named =
            trace.stalls.iter().find(|stall| (stall.tid, stall.at) == (close.tid, close.at));
        let codes = ["close-after-create", "vm-destruction", "busy-processor"];
        assert!(named.and_then(code).is_none_or(|code| codes.contains(&code)), "{named:?}");
        println!(
            "the close of a VM that was never run slept {slept} ns: {:?}",
            named.and_then(code)
        );
    });
}

pub(crate) fn memory_that_is_new() {
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        // How much of its time a thread was in the kernel is counted at ticks, and few of these may be its own.
        is_soon_so(|| match traced_by(choice, &launch(&["leave=256"])) {
            Err(Error::NoTracefs(_)) => true,
            traced => {
                let trace = traced.unwrap();
                let mut named =
                    trace.stalls.iter().filter(|stall| code(stall) == Some("first-touch"));
                named.any(|stall| stall.tid == trace.processes[0].pid)
            }
        });
    }
}

/// Whether this user may count the page faults of its own programs.
fn may_count() -> bool {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let is_root = fs::metadata("/proc/self").is_ok_and(|one| one.uid() == 0);
    is_root || paranoid.trim().parse::<i32>().is_ok_and(|paranoid| paranoid <= 2)
}

/// The guest touches much, and its vCPU's thread as much of its own when the guest is over.
pub(crate) fn memory_that_a_guest_touches() {
    let touched = |trace: &Trace| {
        let named = trace.stalls.iter().filter(|stall| code(stall) == Some("first-touch"));
        named.map(|stall| (stall.tid, stall.at)).collect::<Vec<_>>()
    };
    each(&["irqchip=1", "memory=97", "visit=96"], |trace| {
        assert_eq!(touched(trace), [], "{}", trace.recorder);
    });
    if !may_count() {
        return println!("not run: this user may not count page faults");
    }
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        is_soon_so(|| {
            match traced_by(choice, &launch(&["irqchip=1", "memory=97", "visit=96", "after=256"])) {
                Err(Error::NoTracefs(_)) => true,
                traced => {
                    let trace = traced.unwrap();
                    touched(&trace).iter().any(|(tid, _)| *tid == vcpu(&trace))
                }
            }
        });
    }
}

/// It reads a mebibyte, and computes for long.
pub(crate) fn little_that_is_read() {
    each(&["image=1", "compute=80"], |trace| {
        assert!(took(trace, "image-loading") == 0, "{:?}", trace.stalls);
    });
}

pub(crate) fn a_guest_that_computes() {
    each(&["spin=150"], |trace| {
        let (entry, exit) = (trace.first_entry().unwrap(), trace.last_exit().unwrap());
        assert!(exit - entry >= 140 * MS, "{} {:?}", trace.recorder, trace.phases);
    });
}

/// A control group of the program's own, which is gone with this.
struct Group(PathBuf);

impl Group {
    /// With a limit, as the files of cgroup and of cgroup2 have it; none where this host gives no such group.
    fn of(controller: &str, [old, new]: [(&str, &str); 2]) -> Option<Self> {
        let top = PathBuf::from("/sys/fs/cgroup");
        let given = fs::read_to_string(top.join("cgroup.subtree_control")).unwrap_or_default();
        let is_new = given.split_ascii_whitespace().any(|one| one == controller);
        let (place, (file, limit)) = if is_new { (top, new) } else { (top.join(controller), old) };
        let group = Self(place.join(format!("mayfly-test-{}", id())));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join(file), limit).ok()?;
        Some(group)
    }

    /// A launch of the planted VMM in this group.
    fn launch(&self, arguments: &[&str]) -> Launch {
        let script = r#"echo $$ > "$1/cgroup.procs" && shift && exec "$0" "$@""#;
        let mut launch = launch(&[]);
        launch.command = ["sh", "-c", script].map(Into::into).into();
        launch.command.extend([planted().into(), self.0.clone().into()]);
        launch.command.extend(arguments.iter().map(Into::into));
        launch
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may be in it for a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

pub(crate) fn a_limit_of_processor_time() {
    // Four milliseconds of each hundred.
    let Some(group) = Group::of("cpu", [("cpu.cfs_quota_us", "4000"), ("cpu.max", "4000 100000")])
    else {
        return println!("not run: no control group of our own for processor time");
    };
    each_of(&group.launch(&["leave=64"]), |trace| {
        let held_back = trace.throttled.last().map_or(0, |(_, time)| *time);
        let waited = took(trace, "cpu-limit") + took(trace, "busy-processor");
        if held_back < 200 * MS || held_back < waited / 2 {
            return println!("held back for {held_back} ns: others had the processors");
        }
        assert!(took(trace, "cpu-limit") >= 100 * MS, "{:?}", trace.stalls);
    });
}

pub(crate) fn a_limit_of_memory() {
    let limits = [("memory.limit_in_bytes", "48M"), ("memory.max", "48M")];
    let Some(group) = Group::of("memory", limits) else {
        return println!("not run: no control group of our own for memory");
    };
    // It writes a file that is larger: the kernel takes its pages back first.
    // Of a run, what was seen of it may be too little to be named: of some runs, one is.
    is_soon_so(|| {
        let is_named = Cell::new(true);
        each_of(&group.launch(&["memory=200", "restore=10"]), |trace| {
            let is_there = |function: &String| function == "try_to_free_mem_cgroup_pages";
            let looks = trace.samples.iter().filter(|one| one.stack.iter().any(is_there));
            let seen: u64 = looks.clone().map(|one| one.took).max().unwrap_or(0);
            if seen < 4 * MS {
                return println!("not a wait on this host");
            }
            is_named.set(is_named.get() && took(trace, "memory-limit") > 0);
        });
        is_named.get()
    });
}
