//! The experiment `cache-enable`, as the command runs it.

#[path = "common/ran.rs"]
mod ran;

use mayfly_lab::{BackendChoice, Params, Selection};
use mayfly_record::{Backend, Host, Record, ResultRow};
use mayfly_report::Report;
use ran::ran;

fn run(backend: BackendChoice, host: &Host) -> Vec<ResultRow> {
    let selection = Selection {
        experiments: vec!["cache-enable".to_owned()],
        backend,
        params: Params {
            vcpus: vec![8],
            rounds: Some(2),
            memory: vec!["32MiB".parse().unwrap()],
            ..Params::default()
        },
        ..Selection::default()
    };
    ran(&selection, host)
}

#[test]
fn every_rule_brings_vcpus_up_in_both_mappings_and_is_judged_by_the_oracle() {
    let rows = run(BackendChoice::Only(Backend::Machine), &Host::default());
    assert_eq!(rows.len(), 12);
    for row in &rows {
        assert!(row.checks.iter().all(|check| check.ok), "{}: {:?}", row.variant, row.checks);
        let judged = row.params["lines"] == "oracle";
        assert_eq!(row.counters.contains_key("scenarios"), judged);
        if !judged {
            let [up, secondary] = ["bring_up", "secondary"].map(|name| &row.metrics[name]);
            assert_eq!([up.count, up.rounds, secondary.count, secondary.rounds], [2, 2, 14, 2]);
        }
    }
    let lines = |variant: &str| {
        let of = |row: &&ResultRow| row.variant == variant && row.params["lines"] == "real";
        rows.iter().filter(of).map(|row| row.metrics["lines_flushed"].p50).collect::<Vec<_>>()
    };
    let written = ((256 << 10) + 7 * (8 << 10)) / 64;
    assert_eq!(lines("mayfly"), [written, written]);
    assert!(lines("every-vcpu").into_iter().all(|lines| lines >= 7 * ((20 << 20) / 64)));
    let record = Record::new(Host::default(), rows);
    let report = Report::new(&record).full(true).to_string();
    assert!(report.contains("\nlines oracle\n"), "{report}");
    let found = "first-vcpu stale_in_own-writes: vCPU 1 read 0x0 instead of 0x15";
    assert!(report.contains(found), "{report}");
}

#[test]
fn on_x86s_kvm_it_is_skipped_and_says_why() {
    let host = Host::gather(["test".to_owned()]);
    if !host.kvm || host.arch != "x86_64" {
        return;
    }
    let rows = run(BackendChoice::Only(Backend::Kvm), &host);
    assert_eq!(rows.len(), 1);
    let why = rows[0].skipped.as_deref().unwrap();
    assert!(why.contains("x86"), "{why}");
}
