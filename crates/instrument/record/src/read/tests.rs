use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::backend::Backend;
use crate::description::{Description, MetricDescription, Passes};
use crate::host::Host;
use crate::row::ResultRow;
use crate::samples::Samples;
use crate::unit::Unit;

fn sample_record() -> Record {
    let mut samples = Samples::default();
    for ns in 0..320 {
        samples.record_ns(ns * 37);
        if ns % 10 == 9 {
            samples.end_round();
        }
    }
    let measured = ResultRow::new("device-registration", Backend::Machine, "mayfly")
        .param("devices", 8)
        .param("order", "devices-first")
        .metric("register", &samples)
        .counter("grace_periods", 3)
        .check("coherent", true, "seen by both vCPUs");
    let skipped =
        ResultRow::new("device-registration", Backend::Kvm, "kernel").skipped("no /dev/kvm");
    let metric =
        MetricDescription { name: "register".into(), summary: "one".into(), headline: true };
    Record::new(Host::gather(["mayfly".to_owned()]), vec![measured, skipped]).describing([
        Description {
            name: "device-registration".into(),
            summary: "a VM's start".into(),
            metrics: vec![metric],
            answer: vec!["Nothing waits.".into()],
            verdict: vec!["Nothing waits.".into()],
            answered_by: [("order".to_owned(), "devices-first".into())].into(),
            passes: Some(Passes { count: 2, reached: true, widest: None }),
        },
    ])
}

fn parse(text: &[u8]) -> Result<Record, ReadError> {
    Record::parse(text, Path::new("r.json"))
}

fn sample_document() -> Value {
    serde_json::to_value(sample_record()).unwrap()
}

/// The one-line message that this document is refused with.
fn refusal(document: &Value) -> String {
    let message = parse(document.to_string().as_bytes()).unwrap_err().to_string();
    assert!(message.contains("r.json") && !message.contains('\n'), "{message}");
    message
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let record = sample_record();
    assert_eq!(parse(record.to_json().as_bytes()).unwrap(), record);
}

#[test]
fn samples_stand_in_one_line_a_metric() {
    let text = sample_record().to_json();
    let line = text.lines().find(|line| line.contains("[[0,37,")).unwrap();
    assert!(line.trim_start().starts_with("\"register\": [[0,37,"), "{line}");
    assert_eq!(line.matches('[').count(), 1 + 32);
}

#[test]
fn a_record_cut_anywhere_is_refused() {
    let mut record = sample_record();
    record.results[0].samples.clear();
    let text = record.to_json();
    let text = text.trim_end().as_bytes();
    for end in 0..text.len() {
        assert!(matches!(parse(&text[..end]), Err(ReadError::NotJson { .. })), "cut at {end}");
    }
}

#[test]
fn another_documents_schema_is_named() {
    assert!(refusal(&json!({"schema": "other/1"})).contains("\"other/1\""));
    assert!(refusal(&json!({"schema": "mayfly.record/one"})).contains("mayfly.record/one"));
    assert!(refusal(&json!({"schema": "mayfly.record/0"})).contains("mayfly.record/0"));
    assert!(refusal(&json!({"schema": 1})).contains("\"schema\" is 1"));
    assert!(refusal(&json!({})).contains("missing"));
    assert!(refusal(&json!([1, 2])).contains("missing"));
}

#[test]
fn a_newer_version_is_refused_by_its_number() {
    let said = refusal(&json!({"schema": "mayfly.record/2"}));
    assert!(said.contains("version 2 of mayfly.record; this Mayfly reads up to version"), "{said}");
}

#[test]
fn a_damaged_field_is_named_by_its_place() {
    let summary = "/results/0/metrics/register";
    for (pointer, value, place) in [
        (format!("{summary}/count"), json!(-1), "results[0].metrics.register"),
        (format!("{summary}/count"), json!(0), "results[0].metrics.register"),
        (format!("{summary}/p50"), json!(1_000_000), "results[0].metrics.register"),
        (format!("{summary}/p99"), json!(1), "results[0].metrics.register"),
        (format!("{summary}/p50_interval"), json!([9, 3]), "results[0].metrics.register"),
        (format!("{summary}/halves"), json!(0.5), "results[0].metrics.register"),
        ("/results/0/samples/register/0/0".into(), json!(-1), "results[0].samples"),
        (format!("{summary}/max"), json!("fast"), "results[0].metrics.register"),
        (format!("{summary}/mean"), json!(-0.5), "results[0].metrics.register"),
        ("/results/0/counters/grace_periods".into(), json!(-3), "results[0].counters"),
        ("/results/0/backend".into(), json!("xen"), "results[0].backend"),
        ("/results/1/variant".into(), json!(null), "results[1].variant"),
        ("/results".into(), json!({}), "results"),
        ("/experiments/0/metrics/0/name".into(), json!(7), "experiments[0].metrics[0].name"),
        ("/host/cpus".into(), json!(-2), "host.cpus"),
        ("/host".into(), json!("here"), "host"),
    ] {
        let mut document = sample_document();
        *document.pointer_mut(&pointer).unwrap() = value;
        let message = refusal(&document);
        assert!(message.contains(place), "{message} does not name {place}");
    }
}

#[test]
fn what_a_later_version_adds_is_ignored() {
    let mut document = sample_document();
    document["colour"] = json!("blue");
    document["host"]["numa_nodes"] = json!(2);
    document["results"][0]["metrics"]["register"]["p999"] = json!(7400);
    assert_eq!(parse(document.to_string().as_bytes()).unwrap(), sample_record_at(&document));
    document["results"][0]["metrics"]["register"]["unit"] = json!("bytes");
    let record = parse(document.to_string().as_bytes()).unwrap();
    assert_eq!(record.results[0].metrics["register"].unit, Unit::Other("bytes".into()));
}

/// The sample, with the moment of `document`.
fn sample_record_at(document: &Value) -> Record {
    let mut record = sample_record();
    record.host.time = document["host"]["time"].as_u64().unwrap();
    record
}

#[test]
fn the_least_that_the_schema_promises_is_enough() {
    let record = parse(
        br#"{"schema": "mayfly.record/1",
             "host": {"kernel": "6.18.0", "arch": "aarch64", "cpus": 2, "hz": 250, "kvm": true},
             "results": [{"experiment": "e", "backend": "kvm", "variant": "v"}]}"#,
    )
    .unwrap();
    assert_eq!((record.host.hz, record.results.len()), (Some(250), 1));
}

#[test]
fn a_file_that_is_larger_than_any_record_is_not_read() {
    let message = Record::read(Path::new("/dev/zero")).unwrap_err().to_string();
    let said = "/dev/zero has 67108865 bytes, and a record has 67108864 at most";
    assert_eq!(message, said);
}

#[test]
fn numbers_that_json_does_not_have_are_refused_with_their_place() {
    let text = sample_record().to_json().replacen("\"count\": 320", "\"count\": NaN", 1);
    let message = parse(text.as_bytes()).unwrap_err().to_string();
    assert!(message.contains("r.json is not JSON: results[0].metrics."), "{message}");
    assert!(message.contains(".count: expected value at line "), "{message}");
}

#[test]
fn a_text_that_ends_too_early_says_in_which_field() {
    let message = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
    let said = message(r#"{"host": {"cpu": {"model": 5, "mhz": "#);
    assert!(said.contains("r.json is not JSON: host.cpu"), "{said}");
    assert!(said.contains(": EOF while parsing "), "{said}");
    // Where no field is to be named, none is; and none moves the terminal, or hides what is wrong.
    assert!(message("").contains("is not JSON: EOF"), "{}", message(""));
    assert!(message("{} x").contains("is not JSON: trailing"), "{}", message("{} x"));
    let said = message("{\"schema\":\"mayfly.record/1\"");
    assert!(said.contains("is not JSON: EOF"), "{said}");
    let said = message(r#"{"a\u001b[31m": {"b": nul}}"#);
    assert!(said.contains("is not JSON: a\\u{1b}[31m.b: expected"), "{said}");
    assert!(message(&format!("{{\"{}\": x", "a".repeat(300))).len() < 100);
}

#[test]
fn a_missing_file_is_named() {
    let message = Record::read(Path::new("/nonexistent/r.json")).unwrap_err().to_string();
    assert!(message.starts_with("cannot read /nonexistent/r.json"), "{message}");
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(parse(&bytes).is_err());
    }

    #[test]
    fn a_record_with_one_byte_changed_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = sample_record().to_json().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let _ = parse(&text);
    }
}
