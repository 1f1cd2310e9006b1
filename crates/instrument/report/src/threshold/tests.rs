use mayfly_record::{Host, Samples, Unit};
use proptest::prelude::*;

use super::*;

fn record() -> Record {
    let row = |backend, variant: &str, ns: u64| {
        let mut samples = Samples::default();
        samples.record_ns(ns);
        ResultRow::new("device-registration", backend, variant)
            .metric("first_memslot", &samples)
            .metric("faults", &Samples::of(Unit::Count, [7]))
            .counter("grace_periods", 3)
    };
    let rows = vec![
        row(Backend::Machine, "mayfly", 2_000),
        row(Backend::Machine, "arm64-v6.18", 3_000),
        row(Backend::Kvm, "kernel", 6_130_000),
    ];
    Record::new(Host::default(), rows)
}

fn wrong(threshold: &str) -> Result<Vec<String>, String> {
    let threshold: Threshold = threshold.parse().map_err(|e: ThresholdError| e.to_string())?;
    let violations = threshold.violations(&record()).map_err(|error| error.to_string())?;
    Ok(violations.into_iter().map(|violation| violation.what).collect())
}

#[test]
fn what_is_on_the_wrong_side_is_named_with_its_figure() {
    let kvm = "device-registration.kvm.kernel.first_memslot.p50 is 6.13 ms";
    assert_eq!(wrong("device-registration.kvm.first_memslot.p50 > 1ms").unwrap(), [kvm]);
    assert_eq!(wrong("first_memslot>=6.13ms").unwrap(), [kvm]);
    assert_eq!(wrong("kvm.first_memslot.max > 7 ms").unwrap(), [""; 0]);
    assert_eq!(wrong("p50 < 3us").unwrap().len(), 1, "of what is a time");
    assert_eq!(wrong("kvm > 1ms").unwrap(), [kvm]);
    assert_eq!(wrong("device-registration > 1ms").unwrap(), [kvm]);
    assert_eq!(wrong("first_memslot.p50 < 3us").unwrap().len(), 1);
    assert_eq!(wrong("machine.grace_periods > 2").unwrap().len(), 2);
    assert_eq!(wrong("faults.n < 2").unwrap().len(), 3);
}

#[test]
fn names_with_dots_are_names() {
    let said = wrong("arm64-v6.18.first_memslot.p50 > 1us").unwrap();
    assert_eq!(said, ["device-registration.machine.arm64-v6.18.first_memslot.p50 is 3.00 us"]);
}

#[test]
fn a_ratio_is_to_mayfly_on_the_same_backend() {
    let said = wrong("ratio > 1.1").unwrap();
    assert_eq!(said, ["device-registration.machine.arm64-v6.18.first_memslot.ratio is 1.50x"]);
    assert_eq!(
        wrong("kvm.first_memslot.ratio > 1").unwrap_err().split_once(" names nothing"),
        Some((
            "'kvm.first_memslot.ratio'",
            " here; write EXPERIMENT.BACKEND.VARIANT.METRIC.STATISTIC, of which any may be left out; statistics: p50, min, max, mean, p90, p99, n, ratio"
        ))
    );
}

#[test]
fn what_cannot_be_read_or_names_nothing_is_one_line() {
    for (threshold, said) in [
        ("first_memslot", "is not a threshold"),
        ("> 1ms", "is not a threshold"),
        ("first_memslot > fast", "'fast' in 'first_memslot > fast' is not a number"),
        ("first_memslot > nan", "is not a number"),
        ("first_memslot > -1ms", "is not a number"),
        ("first_memslot > infms", "is not a number"),
        ("first_memslot > 1", "is a time"),
        ("first_memslt.p50 > 1ms", "names nothing"),
        ("kvm.mayfly.first_memslot > 1ms", "names nothing"),
        ("first_memslot.kvm > 1ms", "names nothing"),
    ] {
        let error = wrong(threshold).unwrap_err();
        assert!(error.contains(said) && !error.contains('\n'), "{threshold}: {error}");
    }
}

#[test]
fn what_may_be_meant_is_known_before_it_is_measured() {
    let may = |text: &str| {
        let threshold: Threshold = text.parse().unwrap();
        let destroy = ("destroy", true);
        threshold.may_name("teardown", Backend::Machine, "mayfly", destroy).unwrap()
    };
    assert!(may("teardown.destroy.p99 > 1ms") && may("ratio > 2") && may("destroy > 1s"));
    assert!(may("teardown > 1ms") && may("machine.mayfly.max > 1ms"));
    assert!(!may("slot-delete.destroy > 1ms") && !may("destroyed.p50 > 1ms"));
    assert!(!may("teardown > 1") && !may("machine.p50 > 1") && may("teardown.n > 1"));
    let wrong = |text: &str, is_time| {
        let threshold: Threshold = text.parse().unwrap();
        let of = ("destroy", is_time);
        let may = threshold.may_name("teardown", Backend::Machine, "mayfly", of);
        may.unwrap_err().to_string()
    };
    assert!(wrong("destroy > 1", true).contains("teardown.machine.mayfly.destroy.p50 is a time"));
    assert!(wrong("destroy.n > 1ms", true).contains("is not a time"));
    assert!(wrong("destroy > 1ms", false).contains("is not a time"));
    let counter = |text: &str| text.parse::<Threshold>().unwrap().may_name_a_counter();
    assert!(counter("teardown.tlbi_vmid > 3"));
    assert!(!counter("tlbi_vmid > 3s") && !counter("tlbi_vmid.p50 > 3"));
}

#[test]
fn a_counter_that_is_known_beforehand_is_named_whole_and_as_a_number() {
    let may = |text: &str| {
        let threshold: Threshold = text.parse().unwrap();
        threshold.may_name_the_counter("doctor", Backend::Kvm, "found", "waits")
    };
    for named in ["waits > 0", "found.waits >= 3", "doctor.kvm.found.waits < 1"] {
        assert_eq!(may(named), Ok(true), "{named}");
    }
    for other in ["wait > 0", "waits.p50 > 0", "machine.waits > 0", "found > 0", "n > 0"] {
        assert_eq!(may(other), Ok(false), "{other}");
    }
    let said = may("waits > 1ms").unwrap_err().to_string();
    assert!(said.contains("doctor.kvm.found.waits is not a time"), "{said}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,40}") {
        if let Ok(threshold) = text.parse::<Threshold>() {
            let _ = threshold.violations(&record());
        }
    }
}
