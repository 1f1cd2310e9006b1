//! Runs that are told to end.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::common::{mayfly, ran, record, scratch, send};

/// A run whose first experiment is done, and whose second takes longer than anybody waits.
fn long_run(json: &str) -> (Child, impl Read) {
    let arguments = ["run", "device-registration", "slot-delete", "--backend", "machine"];
    let more = ["--vms", "2", "--rounds", "10000", "--variant", "mayfly", "--json", json];
    let mut child = mayfly(&[&arguments[..], &more].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("mayfly: slot-delete, 2 of 2") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the run has ended");
    }
    (child, stderr)
}

#[test]
fn what_is_done_is_printed_and_kept_and_the_process_dies_of_the_signal() {
    for (signal, name) in
        [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")]
    {
        let file = scratch(&format!("ended-by-{name}.json"));
        let _ = fs::remove_file(&file);
        let (mut child, mut rest) = long_run(file.to_str().unwrap());
        send(&child, signal);
        // As `timeout(1)` does, which signals the process and then its group.
        send(&child, signal);
        let (mut stdout, mut stderr) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        rest.read_to_string(&mut stderr).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{stderr}");
        let said = format!("mayfly: ended by {name}: slot-delete was not finished\n");
        assert_eq!(stderr, said);
        assert!(stdout.contains("\nincomplete: slot-delete was not finished\n"), "{stdout}");
        assert!(stdout.contains("first_memslot"), "{stdout}");
        let record = record(&fs::read(&file).unwrap());
        assert_eq!(record["partial"], "slot-delete was not finished");
        let rows = record["results"].as_array().unwrap();
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row["experiment"] == "device-registration"));
    }
}

/// A cgroup's limit, or the process's, may leave no thread to be had by then: such a run could not be ended.
#[test]
fn who_ends_a_run_is_there_before_a_signal_comes() {
    let threads = |child: &Child| -> Vec<String> {
        let of_it = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        let name = |thread: std::fs::DirEntry| fs::read_to_string(thread.path().join("comm")).ok();
        of_it.filter_map(|thread| name(thread.ok()?)).collect()
    };
    let (mut child, _rest) = long_run("/dev/null");
    let names = threads(&child);
    send(&child, Signal::KILL);
    child.wait().unwrap();
    assert!(names.iter().any(|name| name == "end\n"), "{names:?}");
}

#[test]
fn a_signal_that_the_process_was_started_to_ignore_does_not_end_it() {
    let run = "trap '' HUP; exec \"$0\" run device-registration --backend machine --vms 3 --quiet";
    let mut child = std::process::Command::new("sh")
        .args(["-c", run, env!("CARGO_BIN_EXE_mayfly")])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The shell's own name is that of what it becomes, from then on.
    let comm = format!("/proc/{}/comm", child.id());
    crate::common::wait_until(|| fs::read_to_string(&comm).is_ok_and(|name| name == "mayfly\n"));
    std::thread::sleep(std::time::Duration::from_millis(50));
    send(&child, Signal::HUP);
    assert!(child.wait().unwrap().success());
}

/// A run that is told to end while its first experiment goes on; what it said after that.
fn ended_in_its_first(json: &str, signal: Signal) -> (String, Vec<u8>) {
    let run = ["run", "slot-delete", "--backend", "machine", "--rounds", "10000", "--json", json];
    let mut child = mayfly(&run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("mayfly: slot-delete, 1 of 1") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the run has ended");
    }
    send(&child, signal);
    let (mut said, mut stdout) = (String::new(), Vec::new());
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
    (said, stdout)
}

#[test]
fn a_run_that_ends_before_anything_is_done_leaves_an_earlier_record_alone() {
    let file = scratch("earlier.json");
    fs::write(&file, "an earlier record").unwrap();
    let (said, _) = ended_in_its_first(file.to_str().unwrap(), Signal::TERM);
    assert_eq!(fs::read_to_string(&file).unwrap(), "an earlier record");
    assert!(said.contains("the earlier record in that file is kept"), "{said}");
}

#[test]
fn a_run_that_ends_before_anything_is_done_keeps_a_record_that_says_so() {
    let file = scratch("ended-in-its-first.json");
    let why = "slot-delete was not finished";
    let is_told = |text: &[u8]| {
        let record = record(text);
        assert_eq!(
            (&record["partial"], &record["results"]),
            (&why.into(), &Vec::<()>::new().into())
        );
        assert_eq!(record["experiments"][0]["name"], "slot-delete");
    };
    // Not there, and there without a text in it.
    let _ = fs::remove_file(&file);
    for _ in 0..2 {
        let (said, stdout) = ended_in_its_first(file.to_str().unwrap(), Signal::INT);
        assert_eq!(said, format!("mayfly: ended by SIGINT: {why}\n"));
        assert!(stdout.is_empty(), "{stdout:?}");
        is_told(&fs::read(&file).unwrap());
        let (report, _, code) = ran(mayfly(&["report", file.to_str().unwrap()]));
        assert_eq!(code, Some(0));
        assert!(report.contains(&format!("incomplete: {why}")), "{report}");
        fs::write(&file, "").unwrap();
    }
    // Whoever reads the stream gets a document, too.
    is_told(&ended_in_its_first("-", Signal::INT).1);
}
