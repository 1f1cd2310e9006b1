use mayfly_record::{Backend, Chance, Host, Samples};

use super::shown::Format;
use super::*;

/// A record whose metrics have rounds around `middle` that differ by up to a twentieth, by `seed`.
fn record(metrics: usize, seed: u64, middle: u64) -> Record {
    let mut chance = Chance::new(seed);
    let row = (0..metrics).fold(row("mayfly"), |row, number| {
        let mut samples = Samples::default();
        for _ in 0..40 {
            samples.record_ns(middle + chance.below(u128::from(middle / 20)));
            samples.end_round();
        }
        row.metric(&format!("metric{number}"), &samples)
    });
    Record::new(Host::default(), vec![row])
}

fn row(variant: &str) -> ResultRow {
    ResultRow::new("e", Backend::Machine, variant).param("vms", 2).param("seed", 7)
}

fn verdicts(base: &Record, new: &Record) -> Vec<Verdict> {
    Comparison::of(base, new).unwrap().lines().iter().map(|line| line.verdict).collect()
}

#[test]
fn what_takes_a_fifth_longer_is_slower_and_the_other_way_round_faster() {
    let (base, new) = (record(20, 1, 100_000), record(20, 2, 120_000));
    assert_eq!(verdicts(&base, &new), [Verdict::More; 20]);
    assert_eq!(verdicts(&new, &base), [Verdict::Less; 20]);
}

#[test]
fn of_runs_that_differ_by_chance_nothing_is_said_two_hundred_times() {
    for seed in 0..5 {
        let (base, new) = (record(40, 2 * seed, 100_000), record(40, 2 * seed + 1, 103_000));
        assert_eq!(verdicts(&base, &new), [Verdict::CannotTell; 40], "{seed}");
    }
}

#[test]
fn a_metric_that_differed_from_itself_by_as_much_is_not_told_apart() {
    let unsteady = |middle: u64| {
        let mut samples = Samples::default();
        for round in 0..40 {
            samples.record_ns(if round < 20 { middle } else { middle * 13 / 10 });
            samples.end_round();
        }
        Record::new(Host::default(), vec![row("mayfly").metric("m", &samples)])
    };
    assert_eq!(verdicts(&unsteady(100_000), &unsteady(125_000)), [Verdict::CannotTell]);
}

#[test]
fn one_round_cannot_tell_however_many_samples_it_has() {
    let one = |ns| {
        let mut samples = Samples::default();
        (0..1000).for_each(|_| samples.record_ns(ns));
        Record::new(Host::default(), vec![row("mayfly").metric("m", &samples)])
    };
    let (base, new) = (one(100), one(900));
    let comparison = Comparison::of(&base, &new).unwrap();
    let line = &comparison.lines()[0];
    assert_eq!((line.verdict, line.ratio, line.interval), (Verdict::CannotTell, Some(9.0), None));
}

#[test]
fn other_parameters_are_refused_and_named_and_chance_is_none() {
    let base = Record::new(Host::default(), vec![row("mayfly").param("memory", 1_u64 << 30)]);
    let other = |vms: u64| {
        let row = row("mayfly").param("memory", 1_u64 << 32).param("vms", vms).param("seed", 8);
        Record::new(Host::default(), vec![row])
    };
    assert_eq!(
        Comparison::of(&base, &other(3)).err().unwrap().to_string(),
        "e, mayfly: memory is 1 GiB in BASE and 4 GiB in NEW; vms is 2 in BASE and 3 in NEW"
    );
    let same = Record::new(
        Host::default(),
        vec![row("mayfly").param("memory", 1_u64 << 30).param("seed", 8)],
    );
    assert!(Comparison::of(&base, &same).is_ok());
    let none = Record::new(Host::default(), vec![row("other")]);
    assert_eq!(Comparison::of(&base, &none).err(), Some(Mismatch::Nothing));
}

#[test]
fn records_of_other_machines_are_refused_and_what_differs_is_named() {
    let on = |qemu: &str, registers: &str| {
        let row = row("mayfly").finding("qemu", qemu).finding("registers", registers);
        Record::new(Host::default(), vec![row])
    };
    let base = on("7.2.22", "midr_el1=0x1 ctr_el0=0x8444c004 dczid_el0=0x4");
    let refused = |new: &Record| Comparison::of(&base, new).err().map(|error| error.to_string());
    assert_eq!(refused(&base.clone()), None);
    assert_eq!(
        refused(&on("7.2.22", "midr_el1=0x1 ctr_el0=0x8444c004 dczid_el0=0x7")).as_deref(),
        Some("e, mayfly: registers is dczid_el0=0x4 in BASE and dczid_el0=0x7 in NEW")
    );
    assert_eq!(
        refused(&on("8.2.0", "midr_el1=0x1 ctr_el0=0x8444c004 dczid_el0=0x4")).as_deref(),
        Some("e, mayfly: qemu is 7.2.22 in BASE and 8.2.0 in NEW")
    );
    let unknown = Record::new(Host::default(), vec![row("mayfly")]);
    assert_eq!(
        refused(&unknown).as_deref(),
        Some("e, mayfly: qemu is 7.2.22 in BASE and - in NEW")
    );
    assert!(Comparison::of(&unknown, &unknown).is_ok());
}

#[test]
fn every_format_has_every_metric_and_its_verdict() {
    let (mut base, mut new) = (record(2, 1, 100_000), record(2, 2, 150_000));
    base.results.push(row("gone, for good"));
    new.host.kernel = "7.1".to_owned();
    let comparison = Comparison::of(&base, &new).unwrap();
    let shown = |format| comparison.shown(format, false, false, 80);
    for format in Format::ALL {
        let text = shown(format);
        assert_eq!(text.matches("slower").count() - text.matches("or slower").count(), 2, "{text}");
        assert!(format == Format::Csv || text.contains("7.1"), "{text}");
        assert_eq!(format.name().parse(), Ok(format));
    }
    assert!(shown(Format::Text).contains("only in BASE: e, gone, for good"));
    let json: serde_json::Value = serde_json::from_str(&shown(Format::Json)).unwrap();
    assert_eq!(json["metrics"][1]["metric"], "metric1");
    let csv = shown(Format::Csv);
    assert!(csv.lines().nth(1).unwrap().starts_with("e,machine,mayfly,vms 2,metric0,ns,"), "{csv}");
    assert!(csv.lines().all(|line| line.split(',').count() == 13), "{csv}");
}

#[test]
fn what_chance_came_from_is_no_parameter_of_a_metric_in_any_format() {
    let (base, new) = (record(1, 1, 100_000), record(1, 2, 150_000));
    let comparison = Comparison::of(&base, &new).unwrap();
    for format in Format::ALL {
        let text = comparison.shown(format, true, false, 80);
        assert!(text.contains("vms") && !text.contains("seed"), "{text}");
    }
}

#[test]
fn the_same_record_is_not_different_from_itself() {
    let record = record(3, 1, 5);
    assert_eq!(verdicts(&record, &record), [Verdict::CannotTell; 3]);
}

#[test]
fn a_part_of_a_run_and_few_rounds_are_said_before_anything_is_compared() {
    let (mut base, new) = (record(2, 1, 100_000), record(2, 2, 100_000));
    base.partial = Some("teardown was interrupted".to_owned());
    let shown = |base: &Record, new: &Record| {
        let comparison = Comparison::of(base, new).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&comparison.shown(Format::Json, false, false, 80)).unwrap();
        (comparison.shown(Format::Text, false, false, 80), json["warnings"].clone())
    };
    let (text, json) = shown(&base, &new);
    assert!(text.starts_with("BASE is incomplete: teardown was interrupted\n"), "{text}");
    assert_eq!(json, serde_json::json!(["BASE is incomplete: teardown was interrupted"]));
    assert!(shown(&new, &base).0.starts_with("NEW is incomplete"));
    assert_eq!(shown(&new, &new).1, serde_json::json!([]));

    let of_rounds = |rounds: u64| {
        let mut samples = Samples::default();
        for _ in 0..rounds {
            samples.record_ns(100_000);
            samples.end_round();
        }
        let mut record = new.clone();
        record.results[0] = record.results[0].clone().metric("metric0", &samples);
        record
    };
    let said = |rounds| shown(&new, &of_rounds(rounds)).0;
    let one = "NEW has one round of 1 of 2 metrics: below 6, nothing can be told\n";
    assert!(said(1).starts_with(one), "{}", said(1));
    assert!(said(5).starts_with("NEW has 5 rounds at most of 1 of 2 metrics"), "{}", said(5));
    assert!(!said(6).contains("NEW has"), "{}", said(6));
}
