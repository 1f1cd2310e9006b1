//! The host's page merger, and a stranger's memory: made by the tests, and looked at before and after.
//!
//! These need a root that may set the merger, and x86's KVM; and no stranger beside their own, whose memory they would
//! merge. Where that is not so, or another run has the merger, they say so in one line and pass.

#[path = "host/common.rs"]
mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write, stderr, stdin, stdout};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use mayfly_kvm::{Company, GuestMemory, Ksm, Kvm, Refused, Stranger as Found};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use common::{
    emptied, is_soon, mayfly, ran, record, scratch, send, text, unbroken, wait_until,
    with_its_own_run,
};

const DIRECTORY: &str = "/sys/kernel/mm/ksm";
const SETTINGS: [&str; 6] =
    ["run", "sleep_millisecs", "pages_to_scan", "use_zero_pages", "smart_scan", "advisor_mode"];

/// Of a stranger: 64 MiB, all pages equal.
const BYTES: usize = 64 << 20;

/// One test at a time, of this program and of any other like it: the host has one merger.
struct Turn {
    _here: MutexGuard<'static, ()>,
    _on_the_host: File,
}

static HERE: Mutex<()> = Mutex::new(());
static SAID: Once = Once::new();

impl Turn {
    /// `None` where another such program has had its turn for minutes.
    fn wait() -> Option<Self> {
        let here = HERE.lock().unwrap_or_else(PoisonError::into_inner);
        // What the merger counts is nobody's to lock but these tests'.
        let file = File::open(Path::new(DIRECTORY).join("full_scans")).ok()?;
        let is_ours = is_soon(|| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
        is_ours.then_some(Self { _here: here, _on_the_host: file })
    }
}

/// This test's turn, and the merger's settings, if the merger may be taken here.
fn turn() -> Option<(Turn, Vec<String>)> {
    let Some(turn) = Turn::wait() else {
        not_run("there is none here, or other tests have it");
        return None;
    };
    let why = match (taken(), Kvm::open()) {
        (Ok(_), Ok(_)) if cfg!(target_arch = "x86_64") => return Some((turn, settings())),
        (Err(refused), _) => refused.to_string(),
        (_, Err(error)) => error.to_string(),
        _ => "KVM's guest is x86's".to_owned(),
    };
    not_run(&why);
    None
}

/// Says so past the harness, which keeps what passing tests print to itself; and once for them all.
fn not_run(why: &str) {
    let mut stderr = stderr();
    SAID.call_once(|| {
        writeln!(stderr, "tests of the host's page merger not run: {why}").unwrap();
    });
}

/// Whether a run ended, or did not begin, for somebody who has come meanwhile, and is none of these tests': memory that would
/// be merged, as a QEMU lets all of its guest's be, or another run that has the merger.
fn is_disturbed(stderr: &str) -> bool {
    let others =
        [" has mergeable memory", "another run has the page merger", "somebody else has the page"];
    let is_disturbed = others.iter().any(|said| stderr.contains(said));
    if is_disturbed {
        not_run(stderr);
    }
    is_disturbed
}

/// The merger, as soon as no run has it: the restorer of one that was killed may still be at it.
fn taken() -> Result<Ksm, Refused> {
    let mut taken = Ksm::take(&[], Company::None);
    is_soon(|| {
        let is_had =
            matches!(&taken, Err(refused) if refused.to_string().starts_with("another run"));
        if is_had {
            taken = Ksm::take(&[], Company::None);
        }
        !is_had
    });
    taken
}

fn settings() -> Vec<String> {
    let read = |name| fs::read_to_string(Path::new(DIRECTORY).join(name)).unwrap_or_default();
    SETTINGS.map(read).into()
}

fn is_running() -> bool {
    settings()[0] == "1\n"
}

/// A process with mergeable memory.
struct Stranger {
    child: Child,
    /// It ends when this does.
    _stdin: ChildStdin,
}

impl Stranger {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_stranger", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")), "it has ended");
        let stdin = child.stdin.take().unwrap();
        Self { child, _stdin: stdin }
    }

    /// Whether there is no other one. Says so if there is.
    fn is_alone(&self) -> bool {
        let refused = taken().err();
        let is_this =
            |found: &Found| matches!(found, Found::Process { pid, .. } if *pid == self.child.id());
        let is_alone =
            matches!(&refused, Some(Refused::Strangers { first, more: 0 }) if is_this(first));
        if !is_alone {
            not_run(&refused.map_or_else(String::new, |refused| refused.to_string()));
        }
        is_alone
    }

    fn merged(&self) -> u64 {
        let file = format!("/proc/{}/ksm_merging_pages", self.child.id());
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

#[test]
#[ignore = "is the process that others of these tests start"]
fn a_stranger() {
    let memory = GuestMemory::map(BYTES).unwrap();
    memory.let_merge().unwrap();
    for page in (0..BYTES).step_by(4096) {
        memory.write(page, b"the same in all of them").unwrap();
    }
    println!("ready");
    stdout().flush().unwrap();
    let _ = stdin().read_line(&mut String::new());
}

const RUN: [&str; 6] = ["run", "page-merge", "--backend", "kvm", "--vms", "2"];

fn page_merge(more: &[&str]) -> Command {
    mayfly(&[&RUN[..], more].concat())
}

#[test]
fn nobody_elses_memory_is_touched_unless_it_is_asked_for_twice() {
    let Some((_turn, before)) = turn() else { return };
    let stranger = Stranger::start();
    let scans = || fs::read_to_string(Path::new(DIRECTORY).join("full_scans")).unwrap();
    let scanned = scans();

    let (.., stderr, code) = ran(page_merge(&[]));
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("the host's page merger is left alone; --ksm has it run"), "{stderr}");

    let (stdout, stderr, code) = ran(page_merge(&["--ksm"]));
    assert_eq!(code, Some(3), "{stderr}");
    if !stranger.is_alone() {
        return;
    }
    let pid = stranger.child.id();
    for said in [&stdout, &stderr].map(|said| unbroken(said)) {
        assert!(said.contains(&format!("process {pid} (")), "{said}");
        assert!(said.contains("has mergeable memory; --ksm=shared has that merged"), "{said}");
    }
    assert_eq!((settings(), scans(), stranger.merged()), (before.clone(), scanned, 0));

    let (.., stderr, code) = ran(page_merge(&["--ksm=shared", "--rounds", "1"]));
    if code == Some(3) && is_disturbed(&stderr) {
        return;
    }
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("changes on this host: the page merger's settings"), "{stderr}");
    assert_eq!(settings(), before);
    assert!(stranger.merged() > 0);
}

#[test]
fn with_nobody_else_there_the_merger_runs_and_what_it_merged_is_taken_apart() {
    let Some((_turn, before)) = turn() else { return };
    let file = scratch("merged.json");
    let json = file.to_str().unwrap();
    // On a loaded host the kernel may hold some pages for many seconds, so that these are not merged. It never holds all.
    let mut tries = 0;
    let (stderr, code) = loop {
        let (.., stderr, code) = ran(page_merge(&["--ksm", "--rounds", "1", "--json", json]));
        if is_disturbed(&stderr) {
            return;
        }
        assert_eq!(settings(), before, "{stderr}");
        if !stderr.contains("and no more become so") || stderr.contains(" 0 of ") {
            break (stderr, code);
        }
        tries += 1;
        if tries == 3 {
            return not_run(&stderr);
        }
    };
    assert_eq!(code, Some(0), "{stderr}");
    let record = record(&fs::read(&file).unwrap());
    let row = &record["results"][0];
    assert_eq!(row["params"]["ksm"], "alone");
    assert!(row["counters"]["own_pages_merged"].as_u64().unwrap() > 0, "{row}");
    let checks = row["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["name"] == "taken_apart"), "{row}");
    assert!(checks.iter().all(|check| check["ok"] == true), "{row}");
}

#[test]
fn a_stranger_that_leaves_meanwhile_is_told_of_and_not_waited_for() {
    let Some((_turn, before)) = turn() else { return };
    let mut stranger = Stranger::start();
    if !stranger.is_alone() {
        return;
    }
    let file = scratch("left.json");
    let json = file.to_str().unwrap();
    let mut run = page_merge(&["--ksm=shared", "--rounds", "12", "--quiet", "--json", json]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| stranger.merged() > 0 || run.try_wait().unwrap().is_some());
    stranger.child.kill().unwrap();
    stranger.child.wait().unwrap();
    let output = run.wait_with_output().unwrap();
    let said = text(&output.stderr);
    // Somebody else may have come, and be there still.
    if taken().is_err_and(|refused| is_disturbed(&refused.to_string())) || is_disturbed(said) {
        return;
    }
    assert!(output.status.success(), "{said}");
    let record = record(&fs::read(&file).unwrap());
    let counters = &record["results"][0]["counters"];
    assert_eq!((&counters["others_before"], &counters["others_after"]), (&1.into(), &0.into()));
    assert_eq!(settings(), before);
}

/// A run that goes on, and has the merger run; unless somebody comes whose memory that would merge.
fn long_run() -> Option<Child> {
    long(page_merge(&["--ksm", "--rounds", "10000", "--quiet"]))
}

fn long(mut run: Command) -> Option<Child> {
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| is_running() || run.try_wait().unwrap().is_some());
    if run.try_wait().unwrap().is_none() {
        return Some(run);
    }
    let output = run.wait_with_output().unwrap();
    assert!(is_disturbed(text(&output.stderr)), "{output:?}");
    None
}

#[test]
fn a_stranger_that_comes_meanwhile_ends_it_and_is_told_what_stays_merged() {
    let Some((_turn, before)) = turn() else { return };
    let Some(run) = long_run() else { return };
    let _stranger = Stranger::start();
    let ended = run.wait_with_output().unwrap();
    let stderr = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{stderr}");
    let said = "has mergeable memory, by now; what of it has been merged stays so";
    assert!(stderr.contains(said), "{stderr}");
    assert_eq!(settings(), before);
}

#[test]
fn a_run_that_is_told_to_end_has_put_the_settings_back_before_it_dies() {
    let Some((_turn, before)) = turn() else { return };
    for signal in [Signal::INT, Signal::TERM] {
        let Some(mut run) = long_run() else { return };
        send(&run, signal);
        let status = run.wait().unwrap();
        assert_eq!(settings(), before);
        let died_of = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(died_of, Some(signal.as_raw()));
    }
}

#[test]
fn one_run_at_a_time_has_the_merger_and_a_killed_one_is_put_right_by_its_restorer() {
    let Some((_turn, before)) = turn() else { return };
    let Some(mut first) = long_run() else { return };
    let (.., stderr, code) = ran(page_merge(&["--ksm=shared"]));
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("another run has the page merger"), "{stderr}");
    first.kill().unwrap();
    first.wait().unwrap();
    wait_until(|| !is_running() && settings() == before);
}

#[test]
fn when_the_restorer_is_killed_too_the_next_run_puts_the_settings_back_and_says_so() {
    let Some((_turn, before)) = turn() else { return };
    // Whatever `mayfly` is the next puts right what a killed one has left a note of, and here it is to be this test's.
    let of_its_own = emptied("merger-run");
    let own = || with_its_own_run(&of_its_own);
    let Some(mut run) = own() else {
        not_run("nobody may have a /run of its own here");
        return;
    };
    run.args(RUN).args(["--ksm", "--rounds", "10000", "--quiet"]);
    let Some(mut run) = long(run) else { return };
    // Threads have children of their own; the restorer is whichever one's.
    let tasks = fs::read_dir(format!("/proc/{}/task", run.id())).unwrap();
    let restorers: Vec<i32> = tasks
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    let [restorer] = restorers[..] else { panic!("{restorers:?}") };
    kill_process(Pid::from_raw(restorer).unwrap(), Signal::KILL).unwrap();
    // What the shell runs to wait lives on without it, until the run is gone.
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(is_running());
    let next = ["run", "device-registration", "--backend", "machine", "--vms", "1", "--order"];
    let mut said = String::new();
    wait_until(|| {
        let mut command = own().unwrap();
        command.args(next).arg("memory-first").env("NO_COLOR", "1");
        let (.., stderr, code) = ran(command);
        assert_eq!(code, Some(0), "{stderr}");
        said += &stderr;
        !is_running()
    });
    assert!(said.contains("settings of the page merger that a killed run had left changed"));
    assert_eq!(settings(), before);
}
