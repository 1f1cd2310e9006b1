use super::*;
use crate::params::Params;
use crate::progress::Silent;
use crate::undo::Undo;

/// The rows of all designs with such parameters; `None` on a host whose KVM cannot be used.
fn rows(params: &Params) -> Option<Vec<ResultRow>> {
    if let Err(why) = mayfly_kvm::Kvm::open() {
        eprintln!("not run: {why}");
        return None;
    }
    let variants: Vec<&'static Variant> = Fork.variants().iter().collect();
    let host = Host { cpus: 2, ..Host::default() };
    let request =
        Request { variants: &variants, params, host: &host, undo: &Undo::default(), pass: 0 };
    Some(Fork.run(&request, &mut Silent).unwrap())
}

fn params(size: &str) -> Params {
    let memory = vec![size.parse().unwrap()];
    Params { rounds: Some(2), vms: Some(3), memory, ..Params::default() }
}

#[test]
fn every_design_gives_a_row_with_its_metrics_and_no_fork_finds_what_another_has_written() {
    let Some(rows) = rows(&params("24MiB")) else { return };
    assert_eq!(rows.len(), Fork.variants().len());
    for row in rows.iter().filter(|row| row.skipped.is_none()) {
        for metric in Fork.metrics() {
            let count = if metric.name == AT_ONCE { 3 } else { 2 };
            let found = row.metrics.get(metric.name).map(|summary| summary.count);
            assert_eq!(found, Some(count), "{} of {}", metric.name, row.variant);
        }
        assert_eq!(row.checks.len(), 3);
        assert!(row.checks.iter().all(|check| check.ok), "{} {:?}", row.variant, row.checks);
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
        assert_eq!(own(FORKS_AT_ONCE), 3);
    }
    let skipped: Vec<_> = rows.iter().filter(|row| row.skipped.is_some()).collect();
    assert!(skipped.iter().all(|row| row.variant == USERFAULT), "{skipped:?}");
}

#[test]
fn a_guest_that_has_too_few_pages_for_a_request_is_skipped() {
    let Some(rows) = rows(&params("16MiB")) else { return };
    for row in rows {
        let why = row.skipped.as_deref().unwrap();
        assert_eq!(why, "a guest of 16 MiB has no 5000 pages for a request");
    }
}
