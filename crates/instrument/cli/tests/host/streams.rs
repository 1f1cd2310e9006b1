//! Records that go to streams, runs that there is no room for, and what the exit code says.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::common::{mayfly, ran, record, scratch, text, unbroken};

const QUICK: [&str; 6] = ["run", "device-registration", "--backend", "machine", "--vms", "1"];

fn quick(more: &[&str]) -> Command {
    mayfly(&[&QUICK[..], more].concat())
}

#[test]
fn a_record_that_goes_to_standard_output_by_any_name_is_behind_what_is_there() {
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let log = scratch("stdout.log");
        fs::write(&log, "a log\n").unwrap();
        let stdout = File::options().append(true).open(&log).unwrap();
        let mut run = quick(&["--quiet", "--json", name]);
        assert!(run.stdout(stdout).status().unwrap().success(), "{name}");
        let text = fs::read_to_string(&log).unwrap();
        let json = text.strip_prefix("a log\n").unwrap_or_else(|| panic!("{name}: {text}"));
        assert_eq!(record(json.as_bytes())["schema"], "mayfly.record/1");
    }
}

#[test]
fn a_record_goes_to_the_stream_of_a_number_and_the_report_to_standard_output() {
    let log = scratch("seven.log");
    let run = format!("exec \"$0\" {} --json /dev/fd/7 7>>\"$1\"", QUICK.join(" "));
    fs::write(&log, "a log\n").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &run, env!("CARGO_BIN_EXE_mayfly")]).arg(&log);
    let (stdout, stderr, code) = ran(shell);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.starts_with("Linux "), "{stdout}");
    let text = fs::read_to_string(&log).unwrap();
    record(text.strip_prefix("a log\n").unwrap().as_bytes());
}

#[test]
fn a_file_that_standard_output_goes_to_is_not_replaced_by_a_record() {
    let log = scratch("both.log");
    let stdout = File::create(&log).unwrap();
    let output = quick(&["--json", log.to_str().unwrap()])
        .stdout(stdout)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("mayfly: cannot write ") && said.contains("standard output"),
        "{said}"
    );
}

#[test]
fn what_there_is_no_address_space_for_is_said_with_both_numbers_and_nothing_is_killed() {
    let run = format!("ulimit -v 4000000; exec \"$0\" {}", QUICK.join(" "));
    let mut shell = Command::new("sh");
    shell.args(["-c", &run, env!("CARGO_BIN_EXE_mayfly")]);
    let (stdout, stderr, code) = ran(shell);
    assert_eq!(code, Some(3), "{stderr}");
    for said in [&stdout, &stderr].map(|said| unbroken(said)) {
        let why = "GiB of address space for a software machine of each design, ";
        assert!(said.contains(why) && said.contains(" allowed (RLIMIT_AS"), "{said}");
    }
}

#[test]
fn a_dry_run_says_what_would_be_run_and_runs_nothing() {
    let file = scratch("dry.json");
    let _ = fs::remove_file(&file);
    let (stdout, stderr, code) =
        ran(mayfly(&["run", "--dry-run", "--json", file.to_str().unwrap()]));
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    for experiment in mayfly_lab::experiments() {
        let line = stdout.lines().find(|line| line.starts_with(experiment.name())).unwrap();
        assert!(line.contains(": about ") && line.contains(" of memory; changes "), "{line}");
    }
    let last = stdout.lines().last().unwrap();
    assert!(last.starts_with("in all: about "), "{last}");
    assert!(last.ends_with("changes nothing on this host"), "{last}");
    assert!(!file.exists());
    let (stdout, ..) = ran(mayfly(&["run", "page-merge", "--ksm", "--dry-run"]));
    if stdout.contains("  on kvm: kernel") {
        assert!(stdout.contains("changes on this host: the page merger's settings"), "{stdout}");
    }
}

#[test]
fn a_dry_run_says_what_there_is_no_room_for_on_kvm() {
    let run = |limit: &str| {
        let run =
            format!("{limit}; exec \"$0\" run teardown --backend kvm --memory 1GiB --dry-run");
        let mut shell = Command::new("sh");
        shell.args(["-c", &run, env!("CARGO_BIN_EXE_mayfly")]);
        ran(shell).0
    };
    let free = run("true");
    if !free.contains("  on kvm: kernel") || free.contains("left out") {
        return;
    }
    assert!(free.contains(", 1.06 GiB of memory; "), "{free}");
    let narrow = run("ulimit -v 1000000");
    let why = "  left out on kvm: 1 GiB of address space for guest memory, ";
    assert!(narrow.contains(why), "{narrow}");
    assert!(narrow.contains(", 64 MiB of memory; "), "{narrow}");
}

#[test]
fn a_run_of_nothing_that_was_named_ends_with_3_and_a_run_of_some_of_it_with_0() {
    let (.., stderr, code) = ran(mayfly(&["run", "page-merge", "--vms", "300"]));
    assert_eq!(code, Some(3));
    assert!(
        stderr.contains("mayfly: nothing that was asked for could run: page-merge, "),
        "{stderr}"
    );
    let (.., code) = ran(mayfly(&["run", "page-merge", "--vms", "1", "--rounds", "1"]));
    assert_eq!(code, Some(0));
}

#[test]
fn a_run_like_a_record_has_its_parameters_and_can_itself_be_repeated() {
    let (first, second) = (scratch("first.json"), scratch("second.json"));
    let run = ["--order", "memory-first", "--devices", "3", "--variant", "mayfly", "--quiet"];
    let (.., code) = ran(quick(&[&run[..], &["--json", first.to_str().unwrap()]].concat()));
    assert_eq!(code, Some(0));
    let mut like = first.clone();
    for again in [&second, &second] {
        let options = ["--quiet", "--json", again.to_str().unwrap()];
        let like_it = ["run", "--like", like.to_str().unwrap()];
        let (_, stderr, code) = ran(mayfly(&[&like_it[..], &options].concat()));
        assert_eq!(code, Some(0), "{stderr}");
        let [first, second] = [&first, again].map(|path| record(&fs::read(path).unwrap()));
        assert_eq!(second["host"]["arguments"], first["host"]["arguments"]);
        let params = |record: &serde_json::Value| record["results"][0]["params"].clone();
        assert_eq!(params(&second), params(&first));
        assert_eq!(params(&second)["devices"], 3);
        assert_eq!(second["results"].as_array().unwrap().len(), 1);
        assert!(second["host"]["build"]["rustc"].as_str().unwrap().starts_with("rustc "));
        like.clone_from(again);
    }
}

#[test]
fn what_cannot_be_repeated_is_said_in_one_line_and_is_a_wrong_use() {
    let file = scratch("unlike.json");
    let minimal = r#"{"schema": "mayfly.record/1", "results": [], "host":
        {"kernel": "6", "arch": "x", "cpus": 1, "kvm": false, "arguments": ["list"]}}"#;
    for (text, said) in [
        (minimal, "cannot be repeated"),
        (&minimal.replace("list", "run\", \"--no-such"), "cannot be repeated"),
        (&minimal[..40], "is not JSON"),
        (r#"{"schema": "other/1"}"#, "is not a Mayfly record"),
        (&minimal.replace("\"cpus\": 1", "\"cpus\": -1"), "host.cpus"),
    ] {
        fs::write(&file, text).unwrap();
        let (stdout, stderr, code) = ran(mayfly(&["run", "--like", file.to_str().unwrap()]));
        assert_eq!((stdout.as_str(), code), ("", Some(2)), "{stderr}");
        assert!(stderr.contains(said) && stderr.contains("unlike.json"), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    let (.., code) = ran(mayfly(&["run", "--like", "r.json", "--vms", "3"]));
    assert_eq!(code, Some(2));
}
