//! Records on the command line: shown, compared, held against bounds; and files that are none.

use std::fs;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::Command;

use mayfly_record::{Backend, Host, Record, ResultRow, Samples};
use serde_json::{Value, json};

#[path = "common/records.rs"]
mod common;

use common::{failure, mayfly, scratch, success, text};

/// A record of teardown whose VMs took `ns` to destroy, on both backends.
fn record(ns: u64, vms: u32) -> Record {
    let mut samples = Samples::default();
    for round in 0..20 {
        samples.record_ns(ns + round);
        samples.end_round();
    }
    let row = |backend, variant| {
        ResultRow::new("teardown", backend, variant).param("vms", vms).metric("destroy", &samples)
    };
    let rows = vec![row(Backend::Machine, "mayfly"), row(Backend::Kvm, "kernel")];
    Record::new(Host { kernel: "6.18.0".into(), ..Host::default() }, rows)
}

fn written(path: &Path, record: &Record) -> String {
    fs::write(path, record.to_json()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_record_is_printed_as_a_run_prints_it_and_several_one_after_the_other() {
    let scratch = scratch("printed");
    let (one, two) = (
        written(&scratch.join("1.json"), &record(5_000, 2)),
        written(&scratch.join("2.json"), &record(7_000, 2)),
    );
    let shown = success(&["report", &one, &two]);
    assert_eq!(shown.matches("Linux 6.18.0").count(), 2);
    assert!(shown.find("5.01 us").unwrap() < shown.find("7.01 us").unwrap(), "{shown}");
    assert!(!shown.contains("p90") && success(&["report", "--full", &one]).contains("tail"));
}

#[test]
fn a_page_is_written_whole_or_to_a_stream() {
    let scratch = scratch("page");
    let file = written(&scratch.join("r.json"), &record(5_000, 2));
    let page = scratch.join("r.html");
    assert_eq!(success(&["report", &file, "-o", page.to_str().unwrap()]), "");
    let kept = fs::read_to_string(&page).unwrap();
    assert!(kept.starts_with("<!DOCTYPE html>") && kept.trim_end().ends_with("</html>"));
    assert_eq!(success(&["report", &file, "-o", "-"]), kept);
    assert!(failure(&["report", &file, "-o", "/nonexistent/r.html"], 1).contains("/nonexistent/"));
}

#[test]
fn a_file_that_ends_in_svg_is_a_picture_of_one_record() {
    let scratch = scratch("picture");
    let file = written(&scratch.join("r.json"), &record(5_000, 2));
    let picture = scratch.join("r.svg");
    let picture = picture.to_str().unwrap();
    let drawn = |theme: &[&str]| {
        success(&[&["report", &file, "-o", picture], theme].concat());
        fs::read_to_string(picture).unwrap()
    };
    let light = drawn(&[]);
    assert!(light.starts_with("<svg ") && light.ends_with("</svg>"), "{light}");
    assert!(light.contains("5.01 µs") && light.contains("teardown"), "{light}");
    assert_eq!(drawn(&["--theme", "light"]), light);
    assert_ne!(drawn(&["--theme", "dark"]), light);
    assert!(failure(&["report", &file, &file, "-o", picture], 2).contains("one record"));
    assert!(failure(&["report", &file, "-o", "-", "--theme", "dark"], 2).contains(".svg"));
    assert!(failure(&["report", &file, "--theme", "dark"], 2).contains("--output"));
    assert!(
        failure(&["report", &file, "-o", picture, "--theme", "red"], 2).contains("light, dark")
    );
}

#[test]
fn a_page_does_not_take_the_place_of_a_record_that_it_shows() {
    let directory = scratch("replaced");
    let record = written(&directory.join("record.json"), &record(1000, 2));
    let link = directory.join("link.html");
    std::os::unix::fs::symlink("record.json", &link).unwrap();
    for page in [record.as_str(), link.to_str().unwrap()] {
        let said = failure(&["report", &record, "-o", page], 2);
        assert!(said.contains("record.json is a record to read"), "{said}");
        success(&["report", &record]);
    }
}

#[test]
fn what_is_slower_fails_with_one_line_and_what_cannot_be_told_does_not() {
    let scratch = scratch("compared");
    let (base, same, slow) = (
        written(&scratch.join("base.json"), &record(100_000, 2)),
        written(&scratch.join("same.json"), &record(101_000, 2)),
        written(&scratch.join("slow.json"), &record(120_000, 2)),
    );
    assert!(success(&["compare", &base, &same]).contains("2 cannot be told apart"));
    assert_eq!(
        failure(&["compare", &base, &slow], 1),
        "mayfly: slower: teardown, mayfly: destroy, and 1 more\n"
    );
    assert!(success(&["compare", &slow, &base]).contains("faster"));
    success(&["compare", &base, &slow, "--fail-if", "ratio > 1.3"]);
    assert_eq!(
        failure(&["compare", &base, &slow, "--fail-if", "kvm.destroy.ratio > 1.1"], 1),
        "mayfly: slower: teardown, kernel: destroy\n"
    );
    failure(&["compare", &base, &slow, "--fail-if", "destroy > 1.1"], 1);
    let said = failure(&["compare", &base, &slow, "--fail-if", "destroy.p50 > 2"], 2);
    assert!(said.contains("is not about a ratio"), "{said}");
    assert!(
        failure(&["compare", &base, &slow, "--fail-if", "kvn.ratio > 1"], 2)
            .contains("'kvn.ratio'")
    );
    // What is too little is a failure where it is sure, too.
    assert_eq!(
        failure(&["compare", &slow, &base, "--fail-if", "ratio < 1"], 1),
        "mayfly: faster: teardown, mayfly: destroy, and 1 more\n"
    );
    success(&["compare", &base, &slow, "--fail-if", "ratio < 1"]);
    success(&["compare", &slow, &base, "--fail-if", "ratio < 0.5"]);
    success(&["compare", &base, &base, "--fail-if", "ratio <= 1"]);
    let output = mayfly(&["compare", &base, &slow, "--format", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["metrics"][0]["verdict"], "slower");
    let other = written(&scratch.join("other.json"), &record(100_000, 3));
    assert_eq!(
        failure(&["compare", &base, &other], 2),
        "mayfly: the records cannot be compared: teardown, mayfly: vms is 2 in BASE and 3 in NEW\n"
    );
    assert!(failure(&["compare", &base, &slow, "--format", "xml"], 2).contains("markdown"));
}

#[test]
fn a_run_is_held_against_bounds_that_are_known_to_mean_something_before_it_begins() {
    let run = ["run", "teardown", "--backend", "machine", "--memory", "2MiB", "--rounds", "1"];
    let bounded = |bound| [&run[..], &["--quiet", "--fail-if", bound]].concat();
    let said = failure(&bounded("mayfly.destroy.p50 > 0ns"), 1);
    assert!(
        said.contains("mayfly.destroy.p50 > 0ns: teardown.machine.mayfly.destroy.p50 is "),
        "{said}"
    );
    success(&bounded("mayfly.destroy.p50 > 60s"));
    assert!(failure(&bounded("destry.p50 > 1ms"), 2).contains("'destry.p50' names nothing"));
    assert!(failure(&bounded("slot-delete > 1ms"), 2).contains("'slot-delete' names nothing"));
    assert!(failure(&bounded("kvm.destroy > 1ms"), 2).contains("names nothing"), "not asked for");
    assert!(failure(&bounded("destory > 1s"), 2).contains("'destory' names nothing"));
    assert!(failure(&bounded("teardown > 1ns"), 1).contains("teardown > 1ns: teardown.machine."));
    assert!(failure(&bounded("destroy > 1"), 2).contains("is a time"));
    assert!(failure(&bounded("destroy"), 2).contains("is not a threshold"));
}

#[test]
fn what_is_no_record_is_one_line_that_names_the_file_and_the_member() {
    let scratch = scratch("garbage");
    let good = serde_json::to_value(record(5, 2)).unwrap();
    let changed = |change: fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        document.to_string()
    };
    let whole = good.to_string();
    let cases = [
        ("truncated.json", whole[..whole.len() / 2].to_owned(), "not JSON"),
        ("empty.json", String::new(), "not JSON"),
        ("list.json", "[]".to_owned(), ""),
        ("schema.json", changed(|d| d["schema"] = json!("mayfly.record/9")), "version 9"),
        ("other.json", changed(|d| d["schema"] = json!("else/1")), ""),
        ("nan.json", whole.replacen("\"count\":20", "\"count\":NaN", 1), "not JSON"),
        (
            "missing.json",
            changed(|d| {
                d["results"][0]["metrics"]["destroy"].as_object_mut().unwrap().remove("p50");
            }),
            "results[0].metrics.destroy",
        ),
        ("typed.json", changed(|d| d["results"][1]["variant"] = json!(7)), "results[1].variant"),
    ];
    for (name, document, said) in cases {
        let path = scratch.join(name);
        fs::write(&path, document).unwrap();
        let path = path.to_str().unwrap();
        for arguments in [&["report", path][..], &["compare", path, path], &["run", "--like", path]]
        {
            let line = failure(arguments, 2);
            assert!(line.contains(name) && line.contains(said), "{line}");
        }
    }
    let large = scratch.join("large.json");
    fs::File::create(&large).unwrap().set_len(100 << 20).unwrap();
    let line = failure(&["report", large.to_str().unwrap()], 2);
    assert!(line.contains("large.json has 104857600 bytes"), "{line}");
}

/// In a browser, where there is one: what it makes of the page has every median, and it has nothing to complain about.
#[test]
fn a_browser_shows_the_page_without_a_complaint() {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(browser) = browsers.iter().find(is_there) else {
        let why = "there is no Chromium here (Debian: apt-get install chromium)";
        let _ = writeln!(stderr(), "not run: {why}");
        return;
    };
    let scratch = scratch("browser");
    let file = written(&scratch.join("r.json"), &record(123_456, 2));
    let page = scratch.join("r.html");
    success(&["report", &file, "-o", page.to_str().unwrap()]);
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args([
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", scratch.join("profile").display()))
        .args(["--dump-dom".to_owned(), format!("file://{}", page.display())])
        .output()
        .unwrap();
    let (shown, said) = (text(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("CONSOLE"), "{said}");
    assert_eq!(shown.matches("<section").count(), 2, "teardown and its host");
    let median = "123 us";
    assert!(shown.contains(&format!(">{median}<")), "{shown}");
}
