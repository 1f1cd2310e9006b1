//! The experiment `teardown`, as the command runs it.

#[path = "common/ran.rs"]
mod ran;

use std::collections::BTreeSet;

use mayfly_lab::{BackendChoice, Params, Selection};
use mayfly_record::{Backend, Host, Record, ResultRow};
use mayfly_report::Report;
use ran::ran;

const MEMORY: [&str; 2] = ["2MiB", "40MiB"];
const PAGES: [u64; 2] = [512, 10_240];
const ROUNDS: u32 = 2;

fn run(backend: BackendChoice, memory: &[&str], host: &Host) -> Vec<ResultRow> {
    let memory = memory.iter().map(|size| size.parse().unwrap()).collect();
    let selection = Selection {
        experiments: vec!["teardown".to_owned()],
        backend,
        params: Params { memory, rounds: Some(ROUNDS), ..Params::default() },
        ..Selection::default()
    };
    ran(&selection, host)
}

fn param<'a>(row: &'a ResultRow, name: &str) -> &'a str {
    row.params[name].as_str().unwrap()
}

/// Bytes.
fn memory(row: &ResultRow) -> u64 {
    row.params["memory"].as_u64().unwrap()
}

#[test]
fn every_size_is_torn_down_in_both_mappings_by_every_design_with_what_each_promises() {
    let rows = run(BackendChoice::Only(Backend::Machine), &MEMORY, &Host::default());
    let kinds: BTreeSet<_> =
        rows.iter().map(|row| (memory(row), param(row, "mapping"), row.variant.as_str())).collect();
    assert_eq!((rows.len(), kinds.len()), (24, 24));
    for row in &rows {
        let rounds = u64::from(ROUNDS);
        let at = PAGES.iter().position(|pages| pages * 4096 == memory(row)).unwrap();
        let pages = PAGES[at] * rounds;
        let leaves = if param(row, "mapping") == "4KiB" { pages } else { pages / 512 };
        let threads = ["cpu_caller", "cpu_worker", "cpu_reclaimer", "cpu_all"];
        for metric in ["destroy", "reclaimed"].into_iter().chain(threads) {
            assert_eq!(row.metrics[metric].count, rounds, "{metric}");
        }
        assert!(row.metrics["cpu_caller"].min > 0);
        assert!(!row.metrics.contains_key("cpu_vcpus"), "no vCPU runs while its VM is torn down");
        assert!(row.metrics["reclaimed"].max >= row.metrics["destroy"].min);
        assert!(!row.metrics.contains_key("modelled_destroy"), "all of it was cleaned");
        let per_page = row.variant == "per-page";
        assert_eq!(row.counters["tlbi_vmid"], rounds);
        assert_eq!(row.counters["tlbi_ipa"], if per_page { leaves } else { 0 });
        assert_eq!(row.counters["lines_cleaned"], if per_page { pages * 64 } else { 0 });
        assert!(row.checks.iter().all(|check| check.ok), "{:?}", row.checks);
        let walks = !row.variant.starts_with("mayfly");
        assert_eq!(row.metrics.contains_key("walk"), walks, "{}", row.variant);
        assert_eq!(row.metrics.contains_key("clean"), per_page, "{}", row.variant);
        assert_eq!(row.findings.len(), usize::from(per_page), "{:?}", row.findings);
        let maintained = row.checks.iter().filter(|check| check.name.contains("clean")).count();
        assert_eq!(maintained, if row.variant == "mayfly" { 4 } else { 1 });
    }
    let record = Record::new(Host::default(), rows);
    let report = Report::new(&record).full(true).to_string();
    assert!(report.contains("mapping 4KiB, memory 40 MiB"), "{report}");
}

#[test]
fn on_kvm_the_guest_touches_its_memory_which_is_unmapped_after_the_vm_is_closed() {
    let host = Host::gather(["test".to_owned()]);
    if !host.kvm || host.arch != "x86_64" {
        return;
    }
    for row in run(BackendChoice::Only(Backend::Kvm), &["4MiB"], &host) {
        if let Some(why) = &row.skipped {
            // Small hosts, and those without huge pages.
            assert!(why.contains("memory") || why.contains("huge pages"), "{why}");
            continue;
        }
        for metric in ["destroy", "munmap", "cpu_caller", "cpu_all"] {
            assert_eq!(row.metrics[metric].count, u64::from(ROUNDS), "{metric}");
        }
        assert!(row.checks.iter().all(|check| check.ok), "{:?}", row.checks);
    }
}

#[test]
fn large_vms_are_skipped_on_kvm_and_say_so() {
    let host = Host::gather(["test".to_owned()]);
    if !host.kvm || host.arch != "x86_64" {
        return;
    }
    // The most that can be asked for, and beyond what a guest reaches.
    let rows = run(BackendChoice::Only(Backend::Kvm), &["1024GiB"], &host);
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(row.skipped.unwrap().contains("1024 GiB"));
        assert!(row.metrics.is_empty());
    }
}
