//! The commands of units and of pods, run as they stand there but for where they write, and how long.

use std::fs;
use std::path::Path;
use std::process::Command;

use mayfly_kvm::Kvm;

use crate::packaged::text;

/// The arguments of each `mayfly` in a file.
fn of_unit(name: &str) -> Vec<String> {
    let unit = text(name);
    let find = |key: &str| unit.lines().find_map(|line| Some(line.strip_prefix(key)?.to_owned()));
    let command = find("ExecStart=/usr/bin/mayfly ").unwrap();
    let metrics = find("Environment=METRICS=").unwrap();
    command.replace("${METRICS}", &metrics).split(' ').map(str::to_owned).collect()
}

/// Those of the pods: a command is a list, as JSON has it, or a script of the shell.
fn of_pods() -> Vec<Vec<String>> {
    let pods = text("kubernetes/mayfly.yaml");
    let lists = pods.lines().filter_map(|line| line.trim_start().strip_prefix("command: "));
    let of = |list| {
        let words: Vec<String> = serde_json::from_str(list).unwrap();
        let all = words.join(" ");
        let (_, arguments) = all.split_once("mayfly ").unwrap();
        arguments.split(';').next().unwrap().split(' ').map(str::to_owned).collect()
    };
    lists.map(of).collect()
}

/// Runs it, and gives what it has written.
fn written(arguments: &[String], scratch: &Path) -> String {
    let at = arguments.iter().position(|argument| argument == "--openmetrics").unwrap() + 1;
    let file = scratch.join(Path::new(&arguments[at]).file_name().unwrap());
    let mut arguments = arguments.to_vec();
    file.to_str().unwrap().clone_into(&mut arguments[at]);
    if arguments[0] == "watch" {
        let interval = arguments.iter().position(|argument| argument == "--interval").unwrap() + 1;
        "100ms".clone_into(&mut arguments[interval]);
        arguments.extend(["--count".to_owned(), "1".to_owned()]);
    }
    let ended = Command::new(env!("CARGO_BIN_EXE_mayfly")).args(&arguments).output().unwrap();
    assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.stdout.is_empty(), "{arguments:?}");
    fs::read_to_string(file).unwrap()
}

#[test]
fn the_commands_of_units_and_pods_write_what_the_textfile_collector_reads() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fleet-commands");
    fs::create_dir_all(&scratch).unwrap();
    let mut all =
        vec![of_unit("systemd/mayfly-doctor.service"), of_unit("systemd/mayfly-watch.service")];
    all.extend(of_pods());
    let mut names: Vec<&str> = all.iter().map(|arguments| arguments[0].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["doctor", "doctor", "watch", "watch"]);
    // The collector reads no file of another ending.
    let is_read = |word: &String| Path::new(word).extension().is_some_and(|end| end == "prom");
    assert!(all.iter().all(|arguments| arguments.iter().any(is_read)));
    // Two of a kind say the same. An examination takes seconds.
    all.dedup_by(|one, other| one == other);
    let has_kvm = Kvm::open().is_ok();
    for arguments in all.iter().filter(|arguments| has_kvm || arguments[0] != "doctor") {
        let text = written(arguments, &scratch);
        let first = format!("# HELP mayfly_{}_", arguments[0]);
        assert!(text.starts_with(&first) && text.ends_with("\n# EOF\n"), "{text}");
    }
    if !has_kvm {
        eprintln!("not run in part: the doctor's units, for there is no KVM here");
    }
}
