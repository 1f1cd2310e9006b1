use super::*;
use mayfly_record::{Conditions, Host, Samples};

/// What is to be known of the experiment of [`record`].
fn dummy() -> Description {
    let metric = |name: &str, summary: &str| MetricDescription {
        name: name.to_owned(),
        summary: summary.to_owned(),
        headline: name == "first_memslot",
    };
    Description {
        name: "dummy".to_owned(),
        summary: "what nothing costs".to_owned(),
        metrics: vec![
            metric("register", "one registration"),
            metric("first_memslot", "the first memslot of a VM"),
        ],
        ..Description::default()
    }
}

/// A hundred samples in twenty rounds, from `ns` to a tenth more.
fn samples(ns: u64) -> Samples {
    let mut samples = Samples::default();
    for i in 0..100 {
        samples.record_ns(ns + i * ns / 1000);
        if i % 5 == 4 {
            samples.end_round();
        }
    }
    samples
}

fn row(backend: Backend, variant: &str, order: &str, register: u64, memslot: u64) -> ResultRow {
    ResultRow::new("dummy", backend, variant)
        .param("order", order)
        .param("vms", 100)
        .metric("register", &samples(register))
        .metric("first_memslot", &samples(memslot))
}

fn record() -> Record {
    let host = Host {
        kernel: "6.18.0".into(),
        arch: "x86_64".into(),
        cpus: 2,
        hz: Some(250),
        kvm: true,
        kvm_module: Some("kvm_amd avic=N".into()),
        cpu: Some("AMD EPYC".into()),
        guest: Some(false),
        mayfly: "0.1.0".into(),
        command: "mayfly run dummy".into(),
        ..Host::default()
    };
    let mut results = Vec::new();
    for order in ["devices-first", "vcpus-first"] {
        results.push(row(Backend::Machine, "synchronize", order, 15_200, 3_000));
        results.push(row(Backend::Machine, "call-srcu", order, 820, 7_400_000));
        results.push(row(Backend::Machine, "keyed-on-vcpus", order, 14_100, 3_100));
        results.push(row(Backend::Machine, "call-srcu-expedited", order, 840, 8_000));
        results
            .push(row(Backend::Machine, "mayfly", order, 800, 1_000).counter("grace_periods", 3));
        results.push(row(Backend::Kvm, "kernel", order, 1_600, 7_510_000));
    }
    Record::new(host, results).describing([dummy()])
}

fn shown(record: &Record) -> String {
    Report::new(record).full(true).to_string()
}

/// The cells of the first line that begins with `first`, behind the line that is exactly `title`.
fn cells<'a>(text: &'a str, title: &str, first: &str) -> Vec<&'a str> {
    let mut lines = text.lines().skip_while(|line| *line != title);
    let line = lines.find_map(|line| line.trim_start().strip_prefix(first)).unwrap();
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn the_heading_says_what_was_measured_on_and_how() {
    let text = shown(&record());
    let heading: Vec<&str> = text.lines().take(3).collect();
    assert_eq!(
        heading,
        [
            "Linux 6.18.0 x86_64, 2 x AMD EPYC, bare metal",
            "HZ=250, KVM (kvm_amd avic=N)",
            "mayfly 0.1.0: mayfly run dummy",
        ]
    );
}

#[test]
fn the_heading_says_how_the_host_was_and_what_its_noise_makes_of_ratios() {
    let mut record = record();
    let (load_before, load_after) = (Some(0.3), Some(2.06));
    let (stolen, others) = (Some(0.031), Some(0.12));
    record.conditions = Some(Conditions { load_before, load_after, stolen, others, seconds: 41.6 });
    let mut noisy = Samples::default();
    for round in 0..20 {
        noisy.record_ns(1000 + 310 * (round % 2));
        noisy.end_round();
    }
    for row in &mut record.results {
        *row = row.clone().metric("first_memslot", &noisy);
    }
    let text = shown(&record);
    let heading: Vec<&str> = text.lines().skip(3).take(2).collect();
    assert_eq!(
        heading,
        [
            "42 s, load 0.3 before, 2.1 after, 12% others, 3.1% stolen, halves 1.05x apart",
            "noisy host: ratios below 1.40x mean nothing here",
        ]
    );
}

#[test]
fn the_heading_says_that_a_run_came_to_an_early_end() {
    let mut record = record();
    record.partial = Some("teardown was not finished".to_owned());
    let line = shown(&record).lines().nth(3).map(str::to_owned);
    assert_eq!(line.as_deref(), Some("incomplete: teardown was not finished"));
}

#[test]
fn the_heading_says_where_a_vcpu_waits_as_a_memslot_does() {
    let mut record = record();
    for (module, adds, told) in [
        (Some("kvm_amd avic=Y"), Some(true), "KVM (kvm_amd avic=Y, a memslot with the first vCPU)"),
        (Some("kvm_pvm"), Some(false), "KVM (kvm_pvm)"),
        (None, None, "KVM"),
    ] {
        record.host.kvm_module = module.map(str::to_owned);
        record.host.kvm_vcpu_adds_memslot = adds;
        assert_eq!(shown(&record).lines().nth(1), Some(format!("HZ=250, {told}").as_str()));
    }
}

#[test]
fn the_heading_says_where_guests_are_not_mapped_by_the_tdp_mmu() {
    let mut record = record();
    record.host.kvm_module = Some("kvm_pvm".to_owned());
    for (tdp_mmu, told) in [
        (Some(false), "KVM (kvm_pvm, no TDP MMU)"),
        (Some(true), "KVM (kvm_pvm)"),
        (None, "KVM (kvm_pvm)"),
    ] {
        record.host.kvm_tdp_mmu = tdp_mmu;
        assert_eq!(shown(&record).lines().nth(1), Some(format!("HZ=250, {told}").as_str()));
    }
}

#[test]
fn the_heading_says_whether_arm64_guests_are_write_back_whatever_they_ask_for() {
    let mut record = record();
    record.host.kvm_module = None;
    for (fwb, told) in [(Some(true), "KVM (FWB)"), (Some(false), "KVM (no FWB)"), (None, "KVM")] {
        record.host.kvm_fwb = fwb;
        assert_eq!(shown(&record).lines().nth(1), Some(format!("HZ=250, {told}").as_str()));
    }
}

#[test]
fn every_metric_has_percentiles_and_the_ratio_to_mayfly_of_the_same_order() {
    let mut record = record();
    let text = shown(&record);
    let line = cells(&text, "first_memslot", "call-srcu");
    assert_eq!(line[..3], ["100", "7.40 ms", "7.76 ms"]);
    assert!(line[3].ends_with('%'), "{line:?}");
    assert_eq!(line[4..], ["p90 8.06 ms", "8.13 ms", "7400x"]);
    assert_eq!(cells(&text, "register", "call-srcu-expedited")[6], "1.05x");
    assert_eq!(cells(&text, "register", "mayfly")[6], "1.00x");
    assert_eq!(cells(&text, "register", "kvm kernel").len(), 6, "of another backend");

    record.results.retain(|row| row.variant != "mayfly");
    assert_eq!(cells(&shown(&record), "register", "synchronize").len(), 6);
}

#[test]
fn of_few_samples_no_percentile_and_no_interval_is_shown() {
    let mut record = record();
    let few = Samples::of(mayfly_record::Unit::Nanoseconds, [900, 1000, 1100]);
    record.results[0] = record.results[0].clone().metric("register", &few);
    let line = ["3", "900 ns", "1.00 us", "-", "-", "1.10 us", "1.19x"];
    assert_eq!(cells(&shown(&record), "register", "synchronize"), line);
}

#[test]
fn metrics_stand_in_the_experiments_order_and_are_explained() {
    let text = shown(&record());
    let place = |line: &str| text.lines().position(|l| l == line).unwrap();
    assert!(place("register") < place("first_memslot"));
    assert!(text.contains("first_memslot  the first memslot of a VM"));
    let mut foreign = record();
    foreign.experiments.clear();
    let foreign = shown(&foreign);
    let place = |line: &str| foreign.lines().position(|l| l == line).unwrap();
    assert!(place("first_memslot") < place("register"));
}

#[test]
fn the_medians_of_all_orders_stand_in_one_table() {
    let text = shown(&record());
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("p50")).collect();
    let heading: Vec<&str> = table[0].split_whitespace().collect();
    assert_eq!(heading, ["p50", "synchronize", "srcu", "vcpus", "expedited", "mayfly", "kernel"]);
    assert_eq!(table[1], "order devices-first");
    assert_eq!(table[4], "order vcpus-first");
    assert_eq!(
        cells(&text, "order vcpus-first", "register"),
        ["15.9 us", "860 ns", "14.8 us", "881 ns", "839 ns", "1.68 us"]
    );
}

#[test]
fn what_was_skipped_is_said_once_with_its_reason() {
    let mut record = record();
    for order in ["devices-first", "vcpus-first"] {
        let row = ResultRow::new("dummy", Backend::Kvm, "kernel").param("order", order);
        record.results.push(row.skipped("there is no /dev/kvm"));
    }
    let text = shown(&record);
    assert_eq!(text.lines().last(), Some("skipped on kvm: kernel: there is no /dev/kvm"));
    assert_eq!(text.matches("skipped").count(), 1);
}

#[test]
fn counters_and_failed_checks_are_shown_with_their_variant() {
    let mut record = record();
    let failing = record.results[0].clone().check("coherent", false, "3 stale reads");
    record.results[0] = failing;
    let text = shown(&record);
    assert!(text.contains("synchronize coherent: FAILED, 3 stale reads"));
    record.results[0] = record.results[0].clone().finding("stale_in_own-writes", "0x0");
    let found = shown(&record);
    assert!(found.contains("\nfound\n  synchronize stale_in_own-writes: 0x0\n"), "{found}");
    assert!(text.lines().any(|line| line.split_whitespace().eq(["grace_periods", "3"])), "{text}");
}

#[test]
fn lines_fit_eighty_columns_of_ascii_and_end_without_blanks() {
    for line in shown(&record()).lines() {
        assert!(line.len() <= 80 && line.is_ascii() && line.trim_end() == line, "{line:?}");
    }
}

#[test]
fn colour_only_adds_escapes() {
    let record = record();
    let plain = shown(&record);
    let coloured = Report::new(&record).full(true).colour(true).to_string();
    assert!(!plain.contains('\x1b') && coloured.contains('\x1b'));
    assert_eq!(console::strip_ansi_codes(&coloured), plain);
}

#[test]
fn a_record_of_nothing_is_its_heading() {
    let record = Record::new(Host::default(), Vec::new());
    assert_eq!(shown(&record).lines().count(), 3);
}

#[test]
fn in_short_there_are_the_answer_the_headlines_and_what_failed() {
    let mut record = record();
    let answer = "The first memslot waits for a timer that somebody else has armed, and so does the one \
                  after the next registration.";
    record.experiments[0].answer.push(answer.to_owned());
    record.results[1] = record.results[1].clone().check("coherent", false, "3 stale reads");
    record.results[2] = record.results[2].clone().check("reclaimed", true, "all of it");
    let text = Report::new(&record).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[4..7],
        [
            "dummy: what nothing costs",
            "- The first memslot waits for a timer that somebody else has armed, and so does",
            "  the one after the next registration.",
        ]
    );
    assert!(text.contains("first_memslot") && !text.contains("register "), "{text}");
    assert!(
        text.contains("\norder devices-first: call-srcu coherent: FAILED, 3 stale reads\n"),
        "{text}"
    );
    assert!(!text.contains("reclaimed") && !text.contains("p90"), "{text}");
    assert!(text.ends_with("percentiles, counters and checks.\n"), "{text}");
}

#[test]
fn a_variant_that_has_none_of_the_headlines_has_no_column_of_nothing() {
    let mut record = record();
    let of_its_own = ResultRow::new("dummy", Backend::Kvm, "builder")
        .param("order", "devices-first")
        .param("vms", 100)
        .metric("register", &samples(900));
    record.results.push(of_its_own);
    let text = Report::new(&record).to_string();
    assert!(text.contains("kernel") && !text.contains("builder"), "{text}");
    assert!(shown(&record).contains("builder"));
}

#[test]
fn where_no_metric_is_a_headline_all_are() {
    let mut record = record();
    record.experiments.clear();
    let text = Report::new(&record).to_string();
    assert!(text.contains("first_memslot") && text.contains("register "), "{text}");
}

#[test]
fn a_single_variant_has_its_medians_in_short_and_its_percentiles_in_full() {
    let mut record = record();
    record.results.truncate(1);
    assert!(Report::new(&record).to_string().contains("3.15 us"));
    assert!(!shown(&record).lines().any(|line| line.starts_with("p50")));
}

#[test]
fn of_several_combinations_the_one_is_shown_that_the_answer_is_of() {
    let mut record = record();
    let of = |record: &Record| {
        let text = Report::new(record).to_string();
        text.lines()
            .filter(|line| line.starts_with("order "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&record), ["order devices-first"], "the first, where nothing is said");
    let by = |order: &str| [("order".to_owned(), order.into())].into();
    record.experiments[0].answered_by = by("vcpus-first");
    assert_eq!(of(&record), ["order vcpus-first"]);
    record.experiments[0].answered_by = by("none-such");
    assert_eq!(of(&record), ["order devices-first"]);
    for row in record.results.iter_mut().filter(|row| row.params["order"] == "devices-first") {
        row.metrics.clear();
    }
    assert_eq!(of(&record), ["order vcpus-first"], "the first that has something to show");
}

#[test]
fn of_several_experiments_the_verdicts_stand_first_and_once() {
    let mut record = record();
    let (here, advice) =
        ("This host is not affected.".to_owned(), "What to do: nothing.".to_owned());
    record.experiments[0].answer = vec![here.clone(), "Others are.".to_owned(), advice.clone()];
    record.experiments[0].verdict = vec![here, advice];
    let alone = Report::new(&record).to_string();
    let own = "dummy: what nothing costs\n- This host is not affected.\n- Others are.\n- What to do: nothing.\n";
    assert!(alone.contains(own), "{alone}");
    record.results.push(ResultRow::new("other", Backend::Machine, "mayfly"));
    let text = Report::new(&record).to_string();
    let first = "\n\n- dummy: This host is not affected.\n  What to do: nothing.\n\ndummy: what nothing costs\n- Others are.\n";
    assert!(text.contains(first), "{text}");
    assert_eq!(text.matches("What to do").count(), 1);
    assert!(Report::new(&record).full(true).to_string().contains(own), "all of it stands together");
}
