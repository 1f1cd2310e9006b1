//! Probes that misbehave.

use std::thread;
use std::time::Duration;

use mayfly_doctor::{Probe, Yield, examine_with};
use mayfly_record::{Backend, Host, ResultRow};

fn probe(name: &'static str, run: fn() -> Yield) -> Probe {
    Probe { name, run: Box::new(move |_| run()) }
}

fn row() -> Yield {
    Yield { rows: vec![ResultRow::new("doctor", Backend::Kvm, "well")], ..Yield::default() }
}

fn never() -> Yield {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

#[test]
fn a_call_that_never_returns_costs_what_comes_after_it_and_no_more_time_than_there_is() {
    let probes = vec![probe("well", row), probe("stuck", never), probe("after", row)];
    let seen = examine_with(probes, Host::default(), Duration::from_secs(3));
    let rows: Vec<_> = seen.rows.iter().map(|row| (&*row.variant, row.skipped.is_some())).collect();
    assert_eq!(rows, [("well", false), ("stuck", true), ("after", true)]);
    assert!(seen.failed()[0].contains("stuck: a call has not returned"), "{:?}", seen.failed());
}

#[test]
fn a_probe_that_fails_inside_is_a_row_and_the_others_go_on() {
    let probes = vec![probe("broken", || panic!("planted")), probe("well", row)];
    let seen = examine_with(probes, Host::default(), Duration::from_secs(60));
    assert_eq!(seen.rows.len(), 2);
    assert!(seen.failed()[0].starts_with("broken: the probe panicked"), "{:?}", seen.failed());
    assert!(seen.rows[1].skipped.is_none());
}
