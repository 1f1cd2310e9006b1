//! What a person sees of the command.

use std::fs;
use std::io::{Read, Write, stderr};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn mayfly(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(arguments).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

/// A short run: one experiment, on the machine, few VMs.
fn quick_run(arguments: &[&str]) -> Command {
    let mut command = mayfly(&["run", "device-registration", "--backend", "machine", "--vms", "2"]);
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Runs a command that must fail with `code` and one line, which is returned.
fn failure(mut command: Command, code: i32) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let stderr = text(&stderr);
    assert_eq!(status.code(), Some(code), "{stderr}");
    assert!(stdout.is_empty());
    assert!(stderr.starts_with("mayfly: ") && stderr.ends_with('\n'), "{stderr:?}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(!stderr.trim_end().chars().any(char::is_control), "{stderr:?}");
    stderr.trim_end().to_owned()
}

fn success(mut command: Command) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{}", text(&stderr));
    (text(&stdout).to_owned(), text(&stderr).to_owned())
}

/// A path for a test's file, in a directory that goes with the build.
fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn a_bad_value_is_one_line_that_names_it_and_the_accepted_ones() {
    for (arguments, bad, accepted) in [
        (&["--vms", "0"][..], "'0'", "1 to 100000"),
        (&["--vms", "-5"], "'-5'", "1 to 100000"),
        (&["--vms", "many"], "'many'", "1 to 100000"),
        (&["--vms", "99999999999999999999"], "'99999999999999999999'", "1 to 100000"),
        (&["--vms="], "''", "1 to 100000"),
        (&["--devices", "1001"], "'1001'", "1 to 1000"),
        (&["--vcpus", "0"], "'0'", "1 to 256"),
        (&["--vcpus", "257"], "'257'", "1 to 256"),
        (&["--vcpus", "4,,16"], "''", "1 to 256"),
        (&["--vcpus", "4,x"], "'x'", "1 to 256"),
        (&["--rounds", "0"], "'0'", "1 to 10000"),
        (&["--zap", "everything"], "'everything'", "all-roots, range"),
        (&["--memory", "1"], "'1'", "multiples of 2 MiB up to 1024 GiB"),
        (&["--memory", "1GiB,-1G"], "'-1G'", "multiples of 2 MiB up to 1024 GiB"),
        (&["--hz", "0"], "'0'", "1 to 10000"),
        (&["--hz", "10001"], "'10001'", "1 to 10000"),
        (&["--order", "sideways"], "'sideways'", "devices-first, vcpus-first, memory-first"),
        (&["--order", "devices-first,"], "''", "devices-first, vcpus-first, memory-first"),
        (&["--backend", "xen"], "'xen'", "auto, machine, kvm, metal"),
        (&["--processor", "cortex-a53"], "'cortex-a53'", "max, neoverse-n1, cortex-a72, EPYC"),
    ] {
        let message = failure(mayfly(&[&["run"], arguments].concat()), 2);
        assert!(message.contains(bad) && message.contains(accepted), "{arguments:?}: {message}");
        assert!(message.contains(arguments[0].trim_end_matches('=')), "{message}");
    }
}

#[test]
fn what_means_nothing_on_metal_is_refused_and_what_is_missing_is_named_with_what_brings_it() {
    let on_metal = ["run", "--backend", "metal"];
    for (more, said) in [
        (
            &["teardown"][..],
            "no experiment is named 'teardown' on metal: accepted are lives, dirty-log, fork, devices",
        ),
        (&["--vms", "3"], "accepted are --rounds"),
        (&["--variant", "mayfly"], "accepted are --rounds"),
        (&["--time", "90s"], "accepted are --rounds"),
        (&["--rounds", "101"], "--rounds is 100 at most"),
        (&["--processor", "EPYC,max"], "of one architecture"),
        (&["dirty-log", "--processor", "EPYC"], "dirty-log is not counted on x86-64"),
        (&["devices", "--processor", "EPYC"], "devices is not counted on x86-64"),
    ] {
        let message = failure(mayfly(&[&on_metal, more].concat()), 2);
        assert!(message.contains(said), "{more:?}: {message}");
    }
    let message = failure(mayfly(&["run", "--processor", "cortex-a72"]), 2);
    assert!(message.contains("--backend metal"), "{message}");
    let nowhere = [&on_metal[..], &["lives", "--machine-files", "/nowhere"]].concat();
    let message = failure(mayfly(&nowhere), 3);
    assert!(message.contains("make metal-run"), "{message}");
    let message = failure(mayfly(&[&nowhere[..], &["--processor", "EPYC"]].concat()), 3);
    assert!(message.contains("make metal-run ARCH=x86_64"), "{message}");
    let mut told = mayfly(&[&nowhere[..], &["--dry-run", "--processor", "cortex-a72"]].concat());
    let told = String::from_utf8(told.output().unwrap().stdout).unwrap();
    assert!(told.contains("on metal: mayfly, kvm, kvm-lean, on cortex-a72"), "{told}");
}

#[test]
fn a_bound_in_another_unit_than_its_metric_is_refused_before_anything_runs() {
    for (bound, said) in [
        ("kvm.first_memslot.p50 > 1", "is a time: write ns, us, ms or s"),
        ("slot-delete.root_load_ahead > 1ms", "is not a time: write a number without a unit"),
        ("teardown.p99 > 3", "names nothing here"),
    ] {
        let message = failure(mayfly(&["run", "--fail-if", bound]), 2);
        assert!(message.contains(said) && message.contains(bound.split(' ').next().unwrap()));
    }
}

#[test]
fn unknown_names_are_one_line_whatever_they_contain() {
    for arguments in [
        &["run", "no-such-experiment"][..],
        &["run", "two\nlines \x1b[31m"],
        &["run", ""],
        &["list", "no-such-experiment"],
        &["run", "--variant", "no-such-variant"],
        &["run", "--variant", "mayfly,\x07"],
        &["run", "--no-such-option"],
        &["run", "--vm", "3"],
        &["run", "--backend"],
        &["walk\nslowly"],
    ] {
        failure(mayfly(arguments), 2);
    }
    let message = failure(mayfly(&["run", "no-such-experiment"]), 2);
    assert!(
        message.contains("'no-such-experiment'") && message.contains("accepted are"),
        "{message}"
    );
}

#[test]
fn list_names_every_experiment_of_the_lab() {
    let (stdout, stderr) = success(mayfly(&["list"]));
    for experiment in mayfly_lab::experiments() {
        assert!(stdout.contains(experiment.name()));
        for variant in experiment.variants() {
            assert!(stdout.contains(variant.name));
        }
    }
    assert_eq!(stderr, "");
}

#[test]
fn check_trace_says_which_rule_is_broken_where_and_what_is_no_trace() {
    let good = "mayfly-hwtrace 1\n1 2 0 root top=0x40 order=0 levels=1 format=arm\n";
    let bad = "3 4 0 entry table=0x40 index=5 old=0x0 new=0x9\n5 6 0 entry table=0x40 index=5 old=0x1009 new=0x0\n";
    let check = |name: &str, text: &str| {
        let path = scratch(name);
        fs::write(&path, text).unwrap();
        mayfly(&["check-trace", path.to_str().unwrap()])
    };
    let (stdout, stderr) = success(check("kept.txt", good));
    assert!(stdout.ends_with(": 1 events, and no rule is broken\n") && stderr.is_empty());

    let Output { status, stdout, stderr } =
        check("broken.txt", &format!("{good}{bad}")).output().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(
        text(&stdout).contains("broken.txt: line 4: lost-write: entry 5 of table 0x40 was 0x1009")
    );
    assert!(text(&stderr).ends_with("broken.txt breaks lost-write at line 4, of 1 in all\n"));
    assert_eq!(text(&stderr).lines().count(), 1);

    let message = failure(check("garbage.txt", &format!("{good}3 4 0 entry table=?\n")), 2);
    assert!(message.contains("garbage.txt, line 3: \"?\" is no number for table"), "{message}");
    let message = failure(check("dos.txt", &good.replace('\n', "\r\n")), 2);
    assert!(message.contains("dos.txt, line 1: has a carriage return"), "{message}");
    let message = failure(check("cut.txt", good.trim_end()), 2);
    assert!(message.contains("cut.txt, line 2: cut off: no line feed at its end"), "{message}");
    let message = failure(mayfly(&["check-trace", "/no/such/trace"]), 2);
    assert!(message.contains("cannot open /no/such/trace"), "{message}");
    let message = failure(mayfly(&["check-trace"]), 2);
    assert!(message.contains("<FILE>"), "{message}");
}

#[test]
fn help_tells_of_every_option_with_examples() {
    let (help, _) = success(mayfly(&["run", "--help"]));
    for option in [
        "--backend",
        "--variant",
        "--json",
        "--quiet",
        "--dry-run",
        "--vms",
        "--devices",
        "--vcpus",
        "--hz",
        "--order",
        "--rounds",
        "--memory",
        "--zap",
    ] {
        assert!(help.contains(option), "{option} is missing");
    }
    assert!(help.contains("Examples:"));
    let (help, _) = success(mayfly(&["--help"]));
    assert!(help.contains("run") && help.contains("list") && help.contains("Examples:"));
}

#[test]
fn the_version_is_that_of_the_package() {
    let (stdout, _) = success(mayfly(&["--version"]));
    assert_eq!(stdout, concat!("mayfly ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_run_prints_its_report_and_keeps_its_record() {
    let file = scratch("kept.json");
    let (stdout, stderr) = success(quick_run(&["--json", file.to_str().unwrap()]));
    assert!(stdout.starts_with("Linux "), "{stdout}");
    let lines: Vec<&str> = stderr.lines().collect();
    let [line] = lines[..] else { panic!("one line for one experiment: {stderr}") };
    assert!(line.starts_with("mayfly: device-registration, 1 of 1, about "), "{line}");
    let record: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(record["schema"], "mayfly.record/1");
    let command = record["host"]["command"].as_str().unwrap();
    assert!(
        command.starts_with("mayfly run device-registration --backend machine --vms 2 --json "),
        "{command}"
    );
}

#[test]
fn device_registration_gives_a_row_for_every_variant_in_every_order() {
    let (stdout, _) = success(mayfly(&["run", "device-registration", "--vms", "2", "--json", "-"]));
    let record: Value = serde_json::from_str(&stdout).unwrap();
    let rows = record["results"].as_array().unwrap();
    let on = |backend| rows.iter().filter(move |row| row["backend"] == backend);
    assert_eq!(on("machine").count(), 5 * 3);
    for row in on("machine") {
        for metric in ["register", "first_memslot", "first_vcpu", "later_memslot", "unregister"] {
            assert!(row["metrics"][metric]["p50"].as_u64().unwrap() > 0, "{metric} in {row}");
        }
        assert_eq!(row["metrics"]["destroy"]["count"], 2);
        assert_eq!(row["metrics"]["first_register"]["count"], 2);
        assert_eq!(row["metrics"]["register"]["count"], 2 * 7);
        for metric in ["back_to_back_memslot", "back_to_back_unregister"] {
            assert_eq!(row["metrics"][metric]["count"], 2, "{metric}");
        }
        assert!(row["metrics"]["cpu_all"]["p50"].as_u64().unwrap() > 0, "{row}");
        assert_eq!(row["metrics"]["total"]["unit"], "ns");
        assert_eq!(row["checks"][0]["ok"], true, "{row}");
    }
    let measured = on("kvm").filter(|row| row["skipped"].is_null());
    if record["host"]["kvm"] == true && record["host"]["arch"] == "x86_64" {
        let (built, kernels): (Vec<&Value>, Vec<_>) =
            measured.partition(|row| row["variant"] == "builder");
        assert_eq!((built.len(), kernels.len()), (3, 3));
        for row in built.iter().chain(&kernels) {
            for metric in ["ready", "close", "ready_and_close", "ready_and_close_at_once"] {
                assert_eq!(row["metrics"][metric]["count"], 2, "{metric} in {row}");
            }
        }
        assert!(built.iter().all(|row| row["findings"][0]["name"] == "plan"), "{built:?}");
    } else {
        let _ = writeln!(stderr(), "not run in part: there is no /dev/kvm of x86 here");
        assert_eq!(measured.count(), 0);
    }
}

#[test]
fn the_largest_number_of_devices_fits_on_the_buses() {
    success(quick_run(&["--devices", "1000", "--variant", "mayfly", "--quiet"]));
}

#[test]
fn a_record_on_standard_output_stands_there_alone() {
    let (stdout, stderr) = success(quick_run(&["--json", "-"]));
    assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap()["schema"], "mayfly.record/1");
    assert!(stderr.contains("\nLinux "), "{stderr}");
    let (stdout, stderr) = success(quick_run(&["--json", "-", "--quiet"]));
    assert!(serde_json::from_str::<Value>(&stdout).is_ok());
    assert_eq!(stderr, "");
}

#[test]
fn a_record_that_cannot_be_kept_is_known_before_the_run() {
    let message = failure(quick_run(&["--json", "/nonexistent/r.json"]), 1);
    assert!(message.starts_with("mayfly: cannot write /nonexistent/r.json: "), "{message}");
}

#[test]
fn colour_is_for_those_who_want_it() {
    let run = |variables: &[(&str, &str)]| {
        let mut command = quick_run(&[]);
        command.envs(variables.iter().copied());
        success(command).0.contains('\x1b')
    };
    assert!(run(&[("CLICOLOR_FORCE", "1")]));
    assert!(!run(&[]));
    assert!(!run(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    let mut help = mayfly(&["run", "--help"]);
    help.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "1");
    assert!(!success(help).0.contains('\x1b'));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let run = ["run", "device-registration", "--backend", "machine", "--vms", "2", "--quiet"];
    for arguments in [&["run", "--help"][..], &["list"], &run] {
        let mut child =
            mayfly(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(child.wait().unwrap().success(), "{arguments:?}: {stderr}");
        assert_eq!(stderr, "");
    }
}

#[test]
fn a_full_disk_behind_standard_output_is_a_failure() {
    let commands = [quick_run(&["--quiet"]), mayfly(&["--help"]), mayfly(&["run", "--help"])];
    for mut command in commands.into_iter().chain([mayfly(&["--version"]), mayfly(&["list"])]) {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1);
    }
}

#[test]
fn help_that_nobody_asked_for_is_no_success() {
    let output = mayfly(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty() && text(&output.stderr).contains("Usage: mayfly"));
}

#[test]
fn the_manual_has_every_command_and_its_options_and_shells_complete_them() {
    let (page, _) = success(mayfly(&["man"]));
    for said in [".TH mayfly 1", "MAYFLY RUN", "MAYFLY COMPARE", "\\-\\-fail\\-if", "\\-\\-memory"]
    {
        assert!(page.contains(said), "{said}");
    }
    // It is one page, which refers to no other.
    assert!(page.contains("\nmayfly check\\-trace\n") && !page.contains("trace(1)"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let (script, _) = success(mayfly(&["completions", shell]));
        assert!(script.contains("fail-if") && script.contains("compare"), "{shell}");
    }
    assert!(failure(mayfly(&["completions", "dos"]), 2).contains("zsh"));
}

#[test]
fn the_manual_has_examples_and_exit_codes_line_by_line_as_the_help_has_them() {
    let (page, _) = success(mayfly(&["man"]));
    let plain = page.replace(r"\-", "-").replace(r"\*(Aq", "'").replace(r"\(aq", "'");
    let parts: Vec<&str> = plain.split("\n.SH ").collect();
    for command in ["run", "doctor", "check-trace", "trace"] {
        let mut help = mayfly(&[command, "--help"]);
        let (help, _) = success({
            help.env("COLUMNS", "80");
            help
        });
        let title = format!("MAYFLY {}\n", command.to_uppercase());
        let part = parts.iter().find(|part| part.starts_with(&title)).unwrap();
        for heading in ["Examples:", "Exit codes:"] {
            let Some((_, said)) = help.split_once(&format!("\n{heading}\n")) else { continue };
            let said = said.split("\n\n").next().unwrap().trim_end().replace('\\', r"\\");
            let heading = heading.trim_end_matches(':').to_uppercase();
            let section = part.split(".SS ").find(|section| section.starts_with(&heading));
            let section = section.unwrap_or_else(|| panic!("{heading} of {command}"));
            assert!(section.contains(&format!("\n.nf\n{said}\n")), "{section}\n{said}");
        }
    }
}

#[test]
fn shells_complete_values_that_have_names() {
    for shell in ["bash", "zsh", "fish"] {
        let (script, _) = success(mayfly(&["completions", shell]));
        let all = mayfly_lab::experiments();
        let names = all.iter().map(|experiment| experiment.name());
        let variants = all.iter().flat_map(|e| e.variants()).map(|variant| variant.name);
        let fixed = ["auto", "machine", "kvm", "devices-first", "all-roots", "shared", "markdown"];
        for name in names.chain(variants).chain(fixed) {
            assert!(script.contains(name), "{name} in {shell}");
        }
    }
    if Command::new("bash").arg("--version").output().is_err() {
        let _ = writeln!(stderr(), "not run in part: there is no bash here");
        return;
    }
    let (script, _) = success(mayfly(&["completions", "bash"]));
    let file = scratch("completions.bash");
    fs::write(&file, script).unwrap();
    let completed = |words: &str| {
        let count = words.split(' ').count();
        let script = format!(
            "source {}; COMP_WORDS=({words} ''); COMP_CWORD={count}; _mayfly mayfly '' {}; echo \"${{COMPREPLY[*]}}\"",
            file.display(),
            words.rsplit(' ').next().unwrap()
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        text(&output.stdout).trim().to_owned()
    };
    assert_eq!(completed("mayfly run --backend"), "auto machine kvm metal");
    assert!(completed("mayfly run --variant").contains("change-pte"));
    assert!(completed("mayfly run").contains("teardown"));
    assert!(completed("mayfly list").contains("slot-delete"));
}

#[test]
fn a_slip_of_a_name_is_told_what_was_meant() {
    let said = failure(mayfly(&["run", "slot-delte"]), 2);
    assert!(said.contains("'slot-delete'?): accepted are device-registration, "), "{said}");
    let said = failure(mayfly(&["run", "slot-delete,teardown", "--variant", "elidet"]), 2);
    assert!(said.contains("'elided'?): accepted are write-locked, "), "{said}");
    assert!(said.contains(" of slot-delete; per-page, "), "{said}");
    for (slip, meant) in
        [("rnu", "run"), ("lsit", "list"), ("comprae", "compare"), ("reprot", "report")]
    {
        let said = failure(mayfly(&[slip]), 2);
        assert!(said.contains(&format!("'{meant}'")), "{said}");
    }
    let said = failure(mayfly(&["xyzzy"]), 2);
    assert!(!said.contains("similar") && said.contains("there are run, doctor, "), "{said}");
}

#[test]
fn a_report_fits_the_columns_that_there_are() {
    for (columns, most, ways) in [("60", 60, 2), ("45", 45, 2), ("200", 80, 1), ("many", 80, 1)] {
        for full in [&["--full"][..], &[]].into_iter().take(ways) {
            let mut command = quick_run(full);
            let (stdout, _) = success({
                command.env("COLUMNS", columns);
                command
            });
            for line in stdout.lines() {
                // The command is to be copied; and a name is not broken.
                let is_whole = line.starts_with("mayfly ") || !line.trim().contains(' ');
                assert!(line.chars().count() <= most || is_whole, "{columns}: {line}");
            }
        }
    }
}

#[test]
fn what_is_repeated_until_it_is_known_says_so_everywhere() {
    let json = scratch("precision.json");
    let goal = ["--precision", "100%", "--time", "1m", "--vms", "3", "--order", "devices-first"];
    let run = |more: &[&str]| {
        let mut command = mayfly(&["run", "device-registration", "--variant", "mayfly,call-srcu"]);
        command.args(["--backend", "machine"]).args(goal).args(more);
        command
    };
    let (plan, _) = success(run(&["--dry-run"]));
    assert!(plan.contains("until medians are known to 100%, about 60 s in all at most"), "{plan}");
    let (report, said) = success(run(&["--json", json.to_str().unwrap()]));
    // Three rounds have no interval; six may have one that is as wide as it likes.
    assert!(said.contains("then again, until") && said.contains(" more pass"), "{said}");
    assert!(report.contains("- Measured "), "{report}");
    let record: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(record["goal"], serde_json::json!({"precision": 1.0, "seconds": 60.0}));
    let passes = record["experiments"][0]["passes"]["count"].as_u64().unwrap();
    assert!(passes >= 2, "{passes}");
    for row in record["results"].as_array().unwrap() {
        assert_eq!(row["metrics"]["first_memslot"]["rounds"], 3 * passes);
        assert_eq!(row["params"]["vms"], 3);
    }
    for (option, value) in
        [("--precision", "0"), ("--precision", "5"), ("--time", "10"), ("--time", "0s")]
    {
        let said = failure(mayfly(&["run", option, value]), 2);
        assert!(said.contains("accepted are") && said.contains(option), "{said}");
    }
}
