//! What other tools read of an examination: JSON and metrics.

use std::time::Duration;

use mayfly_doctor::{Code, Document, Examination, SCHEMA, Text, openmetrics};
use mayfly_kvm::{Call, Error, Pair};
use mayfly_record::{Backend, Conditions, Host, ResultRow, Samples, Unit};
use prometheus_parse::{Scrape, Value};

/// A host on which one pair waits, one does not, one cannot be told, and one has failed.
fn seen() -> Examination {
    let pair = |after, call, at_once: [u64; 4]| Pair {
        at_once: at_once.to_vec(),
        later: vec![40_000; 4],
        ..Pair::new(after, call)
    };
    let (long, short) = (6_100_000, 50_000);
    let refused = Error::Call { call: "KVM_CREATE_PIT2", errno: 1 };
    let pairs = vec![
        pair(Call::IrqchipFull, Call::MemslotAdd, [long; 4]),
        pair(Call::IrqchipFull, Call::Vcpu, [short; 4]),
        pair(Call::MemslotAdd, Call::Vcpu, [short, long, short, long]),
        Pair { error: Some(refused), ..Pair::new(Call::Pit, Call::MemslotAdd) },
    ];
    let row = |name| ResultRow::new("doctor", Backend::Kvm, name);
    let close = Samples::of(Unit::Nanoseconds, [16_300_000]);
    let rows = vec![
        row("life").metric("close", &close),
        row("pages-4k").skipped("a \"quoted\" reason\nin two lines"),
    ];
    let host = Host { kernel: "6.18".to_owned(), hz: Some(250), ..Host::default() };
    Examination { host, pairs, rows, took: Duration::from_secs(5), conditions: None }
}

#[test]
fn json_has_a_schema_stable_codes_and_a_verdict_for_each_pair_and_reads_back_the_same() {
    let document = Document::of(&seen());
    let json = document.to_json();
    let read: Document = serde_json::from_str(&json).unwrap();
    assert_eq!(read, document);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema"], SCHEMA);
    assert_eq!(value["findings"][0]["code"], "grace-period");
    assert_eq!(value["findings"][1]["code"], "slow-close");
    let pairs = value["pairs"].as_array().unwrap();
    let verdicts: Vec<_> = pairs.iter().map(|pair| pair["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["waits", "does-not", "unclear", "unknown"]);
    assert_eq!(pairs[0]["wait_ns"], 6_060_000);
    assert!(pairs[1].get("wait_ns").is_none());
    assert!(pairs[3]["error"].as_str().unwrap().starts_with("KVM_CREATE_PIT2: "));
    assert_eq!(value["failed"].as_array().unwrap().len(), 2);
}

/// Every sample of a scrape, as `name{labels}` and its value.
fn scraped(text: &str) -> Vec<(String, f64)> {
    let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
    let of = |sample: prometheus_parse::Sample| {
        let Value::Gauge(value) = sample.value else { panic!("{sample:?} is no gauge") };
        let mut labels: Vec<_> =
            sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        labels.sort();
        (format!("{}{{{}}}", sample.metric, labels.join(",")), value)
    };
    scrape.samples.into_iter().map(of).collect()
}

#[test]
fn metrics_are_read_by_a_parser_as_they_were_meant() {
    let text = openmetrics(&seen(), 1_700_000_000);
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    let samples = scraped(&text);
    let of = |name: &str| samples.iter().find(|(one, _)| one == name).map(|(_, value)| *value);
    assert_eq!(of("mayfly_doctor_finding{code=grace-period}"), Some(1.0));
    assert_eq!(of("mayfly_doctor_finding{code=slow-create}"), Some(0.0));
    assert_eq!(of("mayfly_doctor_finding_wait_seconds{code=slow-close}"), Some(0.0163));
    let wait = |after: &str, call: &str| {
        of(&format!("mayfly_doctor_call_wait_seconds{{after={after},call={call}}}"))
    };
    assert_eq!(wait("irqchip-full", "memslot-add"), Some(0.006_06));
    assert_eq!(wait("irqchip-full", "vcpu"), Some(0.0));
    assert_eq!((wait("memslot-add", "vcpu"), wait("pit", "memslot-add")), (None, None));
    assert_eq!(of("mayfly_doctor_probe_seconds{metric=close,probe=life}"), Some(0.0163));
    assert_eq!(of("mayfly_doctor_failed_probes{}"), Some(2.0));
    assert_eq!(of("mayfly_doctor_timestamp_seconds{}"), Some(1_700_000_000.0));
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(samples.len(), lines, "every line was understood");
}

#[test]
fn each_family_says_what_it_is_before_its_samples_and_once() {
    let text = openmetrics(&seen(), 0);
    let mut family = "";
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').unwrap().0;
            assert_eq!(text.matches(&format!("# HELP {family} ")).count(), 1);
            assert!(text.contains(&format!("\n# TYPE {family} gauge\n")));
        } else if !line.starts_with('#') {
            assert_eq!(line.split(['{', ' ']).next(), Some(family), "{line}");
        }
    }
    let empty = Examination { pairs: Vec::new(), rows: Vec::new(), ..seen() };
    assert!(!openmetrics(&empty, 0).contains("call_wait_seconds"), "no family without samples");
}

#[test]
fn the_text_has_the_answer_first_and_no_line_that_is_too_wide() {
    for (full, width) in [(false, 80), (true, 80), (true, 40)] {
        let seen = seen();
        let text = Text::new(&seen, width).full(full).to_string();
        let first = text.split("\n\n").next().unwrap().replace('\n', " ");
        assert_eq!(
            first,
            "A VM on this host waits for 2 things (a tick is 4.00 ms): grace-period, slow-close."
        );
        assert!(text.contains("6.06"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
    }
}

#[test]
fn a_host_on_which_others_ran_is_said_to_be_loaded_and_a_quiet_one_is_not() {
    let with = |others, stolen| {
        let conditions =
            Conditions { load_before: None, load_after: None, stolen, others, seconds: 5.0 };
        Examination { conditions: Some(conditions), ..seen() }
    };
    let said = |seen: &Examination| {
        let text = Text::new(seen, 200).to_string();
        text.lines().find(|line| line.starts_with("This host was loaded")).map(str::to_owned)
    };
    let loaded = with(Some(0.54), Some(0.01));
    let line = said(&loaded).unwrap();
    assert!(line.contains("other programs took 54% of its processors' time"), "{line}");
    assert!(line.contains("other VMs 1% (steal time)"), "{line}");
    assert!(said(&with(None, Some(0.3))).is_some());
    for quiet in [with(Some(0.1), Some(0.1)), with(None, None), seen()] {
        assert_eq!(said(&quiet), None);
        assert!(!Document::of(&quiet).loaded);
    }
    let json: serde_json::Value = serde_json::from_str(&Document::of(&loaded).to_json()).unwrap();
    assert_eq!((&json["loaded"], &json["conditions"]["others"]), (&true.into(), &0.54.into()));
    // A document of before says nothing of it.
    let mut before = json;
    before.as_object_mut().unwrap().retain(|name, _| name != "loaded" && name != "conditions");
    let read: Document = serde_json::from_value(before).unwrap();
    assert_eq!((read.loaded, read.conditions), (false, None));
}

#[test]
fn the_page_s_table_has_the_codes_that_there_are_in_their_order() {
    let page = include_str!("../../../../docs/doctor.md");
    let table = page.split("| code |").nth(1).unwrap().split("\n\n").next().unwrap();
    let codes = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(codes.collect::<Vec<_>>(), Code::ALL.map(Code::name));
}

#[test]
fn what_could_not_be_told_is_counted_and_what_there_is_none_of_is_not_said() {
    let said = |pairs: Vec<Pair>| {
        let text = Text::new(&Examination { pairs, ..seen() }, 200).to_string();
        text.lines().find_map(|line| Some(line.strip_prefix("Of ")?.to_owned()))
    };
    let all = seen().pairs;
    let short = Pair { at_once: vec![6_100_000], ..all[0].clone() };
    let (told, unclear) = (all[1].clone(), all[2].clone());
    assert_eq!(said(vec![told.clone()]), None);
    let end = "Run this again while the host does less.";
    let of = |pairs| said(pairs).unwrap();
    assert_eq!(
        of(vec![told.clone(), unclear.clone()]),
        format!("2 pairs of calls, 1 is unclear. {end}")
    );
    assert_eq!(
        of(vec![told, short.clone()]),
        format!("2 pairs of calls, 1 was not measured for want of time. {end}")
    );
    assert_eq!(
        of(vec![short, unclear]),
        format!("2 pairs of calls, 1 is unclear, and 1 was not measured for want of time. {end}")
    );
}

#[test]
fn a_host_that_makes_nobody_wait_is_told_so_in_a_line_and_nothing_of_calls() {
    let quiet = Examination { pairs: seen().pairs[1..2].to_vec(), rows: Vec::new(), ..seen() };
    let text = Text::new(&quiet, 80).to_string();
    assert!(text.starts_with("Nothing that was tried makes a VM on this host wait"), "{text}");
    assert!(!text.contains("irqchip") && !text.contains("grace"), "{text}");
}
