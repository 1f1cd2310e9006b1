use mayfly_record::{Backend, Conditions, Description, Host, ResultRow, Samples};

use super::*;

fn samples(number: u64) -> Samples {
    let mut samples = Samples::default();
    samples.record_ns(number);
    samples
}

fn row(experiment: &str, backend: Backend, variant: &str, metric: &str, ns: u64) -> ResultRow {
    ResultRow::new(experiment, backend, variant).metric(metric, &samples(ns))
}

/// A record of two experiments, one of them without a row on KVM that was measured.
fn record() -> Record {
    let registration = |backend, variant, order, ns| {
        row("device-registration", backend, variant, "first_memslot", ns)
            .param("order", order)
            .param("vcpus", 2)
    };
    let results = vec![
        registration(Backend::Machine, "mayfly", "memory-first", 1_000),
        registration(Backend::Machine, "mayfly", "devices-first", 4_660),
        registration(Backend::Machine, "call-srcu", "memory-first", 2_000),
        registration(Backend::Machine, "call-srcu", "devices-first", 6_330_000),
        registration(Backend::Kvm, "kernel", "devices-first", 5_990_000).param("hz", 250),
        row("cache-enable", Backend::Machine, "mayfly", "bring_up", 949_000),
        row("cache-enable", Backend::Machine, "every-vcpu", "modelled_bring_up", 225_000_000),
        ResultRow::new("cache-enable", Backend::Kvm, "kernel").skipped("x86 flushes nothing"),
    ];
    let known = Description {
        name: "device-registration".into(),
        answered_by: [("order".into(), "devices-first".into())].into(),
        ..Description::default()
    };
    let host = Host {
        kernel: "6.18.0".into(),
        cpus: 2,
        cpu: Some("AMD EPYC".into()),
        hz: Some(250),
        kvm: true,
        guest: Some(true),
        mayfly: "0.1.0".into(),
        time: 951_782_400,
        ..Host::default()
    };
    let mut record = Record::new(host, results).describing([known]);
    record.conditions = Some(Conditions {
        load_before: Some(0.4),
        load_after: Some(3.0),
        stolen: Some(0.006),
        others: Some(0.13),
        seconds: 240.0,
    });
    record
}

fn drawn(record: &Record) -> String {
    Picture::new(record, Theme::Light).to_string()
}

/// The texts of a picture, in its order.
fn texts(picture: &str) -> Vec<String> {
    let body = picture.split_once("</style>").unwrap().1;
    body.split('<')
        .filter_map(|part| part.split_once('>'))
        .map(|(_, text)| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect()
}

/// The width of the first bar of a class.
fn width(picture: &str, class: &str) -> f64 {
    let bar = picture.split(&format!("<rect class=\"{class}\"")).nth(1).unwrap();
    bar.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
}

#[test]
fn an_experiment_has_a_bar_of_the_hosts_kvm_one_of_the_earlier_design_and_one_of_mayfly() {
    let picture = drawn(&record());
    let texts = texts(&picture);
    let after = |label: &str| {
        let at = texts.iter().position(|text| text == label).unwrap();
        texts[at + 1].as_str()
    };
    assert_eq!(after("this host's KVM"), "5.99 ms");
    assert_eq!(after("as Linux v6.18"), "6.33 ms");
    assert_eq!(after("Mayfly"), "4.66 µs", "of the order that the answer is of");
    assert_eq!(after("a flush for every vCPU"), "225 ms, modelled");
    let [kvm, before, mayfly] = ["kvm", "before", "mayfly"].map(|class| width(&picture, class));
    assert!(mayfly < kvm && kvm < before && mayfly > 2.0, "{mayfly} {kvm} {before}");
    assert!(texts.iter().any(|text| text == "10 µs") && !picture.contains(" us<"), "{texts:?}");
}

#[test]
fn the_parameters_that_are_drawn_are_those_with_which_kvm_was_measured_then_those_of_the_answer() {
    let mut record = record();
    let of = |backend, variant, memory: u64, ns| {
        row("teardown", backend, variant, "destroy", ns).param("memory", memory << 30)
    };
    record.results.extend([
        of(Backend::Machine, "mayfly", 64, 3_000),
        of(Backend::Machine, "mayfly", 1, 1_000),
        of(Backend::Machine, "mayfly", 16, 2_000),
        of(Backend::Machine, "per-page", 16, 2_000_000),
    ]);
    record.experiments.push(Description {
        name: "teardown".into(),
        answered_by: [("memory".into(), (16_u64 << 30).into())].into(),
        ..Description::default()
    });
    let said = |record: &Record| texts(&drawn(record)).join("\n");
    assert!(said(&record).contains("(16 GiB)") && said(&record).contains("2.00 ms"));
    record.results.push(of(Backend::Kvm, "kernel", 1, 5_000_000));
    assert!(said(&record).contains("(1 GiB)") && said(&record).contains("5.00 ms"));
    record.results.push(of(Backend::Kvm, "kernel", 16, 7_000_000));
    assert!(said(&record).contains("(16 GiB)") && said(&record).contains("7.00 ms"));
}

#[test]
fn a_bar_that_is_missing_has_the_reason_in_its_place() {
    let mut record = record();
    assert!(texts(&drawn(&record)).contains(&"x86 flushes nothing".to_owned()));
    record.results.retain(|row| row.backend != Backend::Kvm && row.variant != "every-vcpu");
    let texts = texts(&drawn(&record));
    assert!(texts.iter().filter(|text| *text == "not measured").count() >= 3, "{texts:?}");
}

#[test]
fn an_experiment_that_the_record_does_not_have_is_left_out() {
    let mut record = record();
    let height = |record: &Record| {
        let picture = drawn(record);
        let of = picture.split("height=\"").nth(1).unwrap().split('"').next().unwrap();
        of.parse::<u32>().unwrap()
    };
    let both = height(&record);
    record.results.retain(|row| row.experiment == "cache-enable");
    assert!(!drawn(&record).contains("device-registration") && height(&record) < both);
    record.results.clear();
    assert!(drawn(&record).contains("none of the rows"));
    assert!(height(&record) < both);
}

#[test]
fn units_that_differ_have_an_axis_each() {
    let mut record = record();
    let faults = Samples::of(Unit::Count, [16_000]);
    record.results.push(
        ResultRow::new("page-merge", Backend::Machine, "mayfly").metric("guest_faults", &faults),
    );
    let texts = texts(&drawn(&record));
    assert!(texts.iter().any(|text| text == "16,000"), "{texts:?}");
    assert!(texts.iter().any(|text| text == "10,000") && texts.iter().any(|text| text == "10 µs"));
}

#[test]
fn a_picture_says_what_it_was_measured_on_and_when_and_how_the_host_was() {
    let told = texts(&drawn(&record())).join(" ");
    for fact in [
        "2 CPUs of a virtual machine (AMD EPYC), Linux 6.18.0 at HZ=250, with KVM.",
        "Measured on 2000-02-29 by Mayfly 0.1.0.",
        "The load was 0.4 before the run",
        "13% of the CPUs' time went to other processes",
        "0.6% of the CPUs' time was stolen.",
    ] {
        assert!(told.contains(fact), "{fact}: {told}");
    }
    let mut bare = record();
    bare.conditions = None;
    bare.host = Host { kernel: "7.1".into(), ..Host::default() };
    bare.partial = Some("it was interrupted".into());
    let told = texts(&drawn(&bare)).join(" ");
    assert!(told.contains("The record is not complete: it was interrupted."), "{told}");
    assert!(!told.contains("Measured on") && !told.contains("stolen"), "{told}");
}

#[test]
fn a_reader_who_does_not_see_it_is_told_every_number() {
    let picture = drawn(&record());
    assert!(picture.contains("role=\"img\" aria-labelledby=\"title desc\""));
    let told = picture.split("<desc id=\"desc\">").nth(1).unwrap().split("</desc>").next().unwrap();
    for number in ["5.99 ms", "6.33 ms", "4.66 µs", "949 µs", "225 ms, modelled", "x86 flushes"] {
        assert!(told.contains(number), "{number}: {told}");
    }
}

#[test]
fn one_record_and_theme_are_always_the_same_picture_and_themes_differ_in_colours_alone() {
    let (light, dark) = Theme::ALL.map(|theme| Picture::new(&record(), theme).to_string()).into();
    assert_eq!(light, drawn(&record()));
    let body = |picture: &str| picture.split_once("</style>").unwrap().1.to_owned();
    assert!(light != dark && body(&light) == body(&dark));
    assert_eq!("dark".parse(), Ok(Theme::Dark));
    assert!("blue".parse::<Theme>().unwrap_err().contains("light, dark"));
}

#[test]
fn a_picture_needs_nothing_beside_itself_and_runs_nothing() {
    let picture = drawn(&record());
    assert_eq!(picture.matches("http").count(), 1, "the namespace");
    for outside in ["<script", "<image", "<use", "@import", "url(", "href"] {
        assert!(!picture.contains(outside), "{outside}");
    }
}

#[test]
fn whatever_a_record_says_is_text() {
    let hostile = "</style><script>alert(1)</script>\"'&\0\u{1b}[31m\u{ffff}]]>";
    let mut record = record();
    record.host.kernel = hostile.to_owned();
    record.host.cpu = Some(hostile.repeat(100));
    record.host.mayfly = hostile.to_owned();
    record.partial = Some(hostile.to_owned());
    for row in &mut record.results {
        row.skipped = row.skipped.take().map(|_| hostile.repeat(50));
        row.params.insert("devices".to_owned(), hostile.into());
    }
    let picture = drawn(&record);
    assert!(!picture.contains("<script") && picture.contains("&lt;script&gt;"), "{picture}");
    assert!(!picture.contains(['\0', '\u{1b}', '\u{ffff}']) && picture.contains('\u{fffd}'));
    assert_eq!(picture.matches("</style>").count(), 1);
    let longest = texts(&picture).iter().map(|text| text.chars().count()).max().unwrap();
    assert!(longest < 7000, "{longest}");
    // Every element that is opened is closed: no name of HTML's is left open, as HTML would let it be.
    let opened = picture.matches('<').count() - picture.matches("</").count();
    assert_eq!(opened, picture.matches("</").count(), "{picture}");
}
