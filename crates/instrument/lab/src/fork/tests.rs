use std::sync::OnceLock;

use super::*;
use crate::params::Params;
use crate::progress::Silent;
use crate::undo::Undo;

/// The rows of all designs on a backend, with such parameters.
fn rows_on(backend: Backend, params: &Params) -> Vec<ResultRow> {
    let of_backend = |variant: &&'static Variant| variant.backend == backend;
    let variants: Vec<&'static Variant> = Fork.variants().iter().filter(of_backend).collect();
    let host = Host { cpus: 2, ..Host::default() };
    let request =
        Request { variants: &variants, params, host: &host, undo: &Undo::default(), pass: 0 };
    Fork.run(&request, &mut Silent).unwrap()
}

/// The same on KVM; `None` on a host whose KVM cannot be used.
fn rows(params: &Params) -> Option<Vec<ResultRow>> {
    if let Err(why) = mayfly_kvm::Kvm::open() {
        eprintln!("not run: {why}");
        return None;
    }
    Some(rows_on(Backend::Kvm, params))
}

fn params(size: &str) -> Params {
    let memory = vec![size.parse().unwrap()];
    Params { rounds: Some(1), forks: vec![3], memory, ..Params::default() }
}

/// Those of the machine, which are run once.
fn machine_rows() -> &'static [ResultRow] {
    static ROWS: OnceLock<Vec<ResultRow>> = OnceLock::new();
    ROWS.get_or_init(|| rows_on(Backend::Machine, &params("24MiB")))
}

/// What is measured of many forks alone.
const MANY: [&str; 3] = [IN_TURN, AT_ONCE, ALL_AT_ONCE];

/// Each row has the metrics of what it is a row of, so many samples of each, and no check that fails.
fn expect_metrics(rows: &[ResultRow], unmeasured: &[&str]) {
    for row in rows.iter().filter(|row| row.skipped.is_none()) {
        let is_many = row.params[Bound::FORKS.name] == 3;
        for metric in Fork.metrics().iter().filter(|metric| !unmeasured.contains(&metric.name)) {
            let expected = match (is_many, MANY.contains(&metric.name)) {
                (true, true) if metric.name == ALL_AT_ONCE => Some(1),
                (true, true) => Some(3),
                (false, false) => Some(1),
                _ => None,
            };
            let found = row.metrics.get(metric.name).map(|summary| summary.count);
            assert_eq!(found, expected, "{} of {}", metric.name, row.variant);
        }
        assert_eq!(row.checks.len(), if is_many { 1 } else { 3 });
        assert!(row.checks.iter().all(|check| check.ok), "{} {:?}", row.variant, row.checks);
        assert_eq!(row.counters.get(FORKS_AT_ONCE), is_many.then_some(&3));
    }
}

#[test]
fn every_design_gives_a_row_with_its_metrics_and_no_fork_finds_what_another_has_written() {
    let Some(rows) = rows(&params("24MiB")) else { return };
    expect_metrics(&rows, &[]);
    let of_one = rows.iter().filter(|row| row.params[Bound::FORKS.name] == 1);
    assert_eq!(of_one.clone().count(), 4);
    for row in of_one.filter(|row| row.skipped.is_none()) {
        let own = |name| row.counters[name];
        let written = |pages: usize| pages as u64 * 4;
        if row.variant == COPY {
            assert_eq!(own(OWN_IDLE), 24 << 10);
        } else {
            assert_eq!(own(OWN_IDLE), 0, "{}", row.variant);
            for pages in &REQUESTS {
                // The guest's own tables, and what the processor notes in them, are a few more.
                let (own, least) = (own(pages.own), written(pages.count));
                assert!((least..least + 64).contains(&own), "{}: {own} KiB", row.variant);
            }
        }
    }
    let skipped: Vec<_> = rows.iter().filter(|row| row.skipped.is_some()).collect();
    assert!(skipped.iter().all(|row| row.variant == USERFAULT), "{skipped:?}");
}

#[test]
fn on_the_machine_forks_have_what_they_wrote_and_fault_once_for_each_page() {
    let rows = machine_rows();
    assert_eq!(rows.len(), 6);
    // There are no registers.
    expect_metrics(rows, &[REGISTERS]);
    let of = |variant: &str| {
        let is_it = |row: &&ResultRow| row.variant == variant;
        rows.iter().find(is_it).unwrap()
    };
    let [copy, linux, ours] = [COPY, MAP_PRIVATE, Variant::BASELINE].map(of);
    for pages in &REQUESTS {
        let count = pages.count as u64;
        // Four levels, of which the last is a table for each 2 MiB, and one more at either end.
        let tables = 4 * (3 + count.div_ceil(512) + 1);
        for row in [linux, ours] {
            let own = row.counters[pages.own];
            assert!((4 * count..=4 * count + tables).contains(&own), "{}: {own}", row.variant);
        }
        // Each page is first written in this request, and copied in its fault.
        for row in [copy, linux, ours] {
            assert_eq!(row.counters[pages.faults], count, "{}", row.variant);
        }
        assert_eq!(copy.counters[pages.faults_again], 0, "a copy stays mapped");
        assert_eq!([linux, ours].map(|row| row.counters[pages.faults_again]), [count; 2]);
    }
    assert!(copy.counters[OWN_IDLE] >= 24 << 10);
    assert!(ours.counters[OWN_IDLE] <= 16, "{}", ours.counters[OWN_IDLE]);
}

#[test]
fn rows_of_forks_say_what_they_began_from_and_are_refused_where_that_differs() {
    let held = crate::alike::held_alike(machine_rows());
    assert!(held.iter().all(|row| row.checks.iter().all(|check| check.ok)), "{held:#?}");
    // A fork that has its memory mapped already is no fork that begins.
    let mut other = machine_rows().to_vec();
    let start = other[0].start.values_mut().next().unwrap();
    *start = [[("pages".to_owned(), 6144)].into()].into();
    let held = crate::alike::held_alike(&other);
    let refused: Vec<_> = held.iter().filter(|row| row.metrics.is_empty()).collect();
    assert_eq!((refused.len(), refused[0].variant.as_str()), (1, COPY));
}

#[test]
fn a_guest_that_has_too_few_pages_for_a_request_is_skipped() {
    let mut all = rows_on(Backend::Machine, &params("16MiB"));
    all.extend(rows(&params("16MiB")).unwrap_or_default());
    for row in all {
        let why = row.skipped.as_deref().unwrap();
        assert_eq!(why, "a guest of 16 MiB has no 5000 pages for a request");
    }
}
