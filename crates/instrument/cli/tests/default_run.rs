//! What a run of everything prints, by the medians of one that was recorded where there is a KVM.

use std::path::Path;

use mayfly_lab::{Answer, answer, experiments};
use mayfly_record::{Backend, Record};
use mayfly_report::Report;

/// Lines that it may print.
const MOST_LINES: usize = 120;

/// Those of them within which it is said of every experiment whether this host is affected, and what to do.
const FIRST_LINES: usize = 40;

const RECORDED: &str = include_str!("data/default-run.json");

/// The record, as whoever makes one describes it.
fn record(change: impl Fn(&mut Record)) -> Record {
    let mut record = Record::parse(RECORDED.as_bytes(), Path::new("default-run.json")).unwrap();
    change(&mut record);
    let described = experiments().iter().map(|experiment| {
        let mut known = experiment.describe();
        let Answer { lines, verdict, by } =
            answer(experiments(), &known.name, &record.results, &record.host);
        (known.answer, known.verdict, known.answered_by) = (lines, verdict, by);
        known
    });
    record.clone().describing(described)
}

fn unbroken(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every experiment's verdict stands within the first lines, and all of it within what is legible.
fn is_short_and_begins_with_the_verdicts(record: &Record) {
    let shown = Report::new(record).to_string();
    let lines = shown.lines().count();
    assert!(lines <= MOST_LINES, "{lines} lines:\n{shown}");
    let first = unbroken(&shown.lines().take(FIRST_LINES).collect::<Vec<_>>().join("\n"));
    let has_rows = |name: &str| record.results.iter().any(|row| row.experiment == name);
    let ran: Vec<_> = record.experiments.iter().filter(|known| has_rows(&known.name)).collect();
    assert_eq!(ran.len(), 5, "those that the record was made of");
    for known in ran {
        assert!(known.verdict[0].contains("his host"), "{:?}", known.verdict);
        for line in &known.verdict {
            assert!(first.contains(&unbroken(line)), "'{line}' is not in the first of\n{shown}");
        }
    }
}

#[test]
fn a_run_of_everything_is_short_and_says_first_who_is_affected() {
    let record = record(|_| ());
    is_short_and_begins_with_the_verdicts(&record);
    let advised = |known: &&_| matches!(known, mayfly_record::Description { verdict, .. } if verdict.len() == 2);
    // All but the one that is none of this host's business.
    assert_eq!(record.experiments.iter().filter(advised).count(), 4);
}

#[test]
fn so_is_one_without_a_kvm() {
    let why = "/dev/kvm: permission denied (os error 13); to be allowed, join the group kvm";
    let record = record(|record| {
        record.host.kvm = false;
        for row in record.results.iter_mut().filter(|row| row.backend == Backend::Kvm) {
            *row = row.clone().skipped(why);
            row.metrics.clear();
        }
    });
    is_short_and_begins_with_the_verdicts(&record);
    assert!(Report::new(&record).to_string().contains("permission denied"));
}

#[test]
fn every_experiment_shows_one_combination_of_parameters_and_all_of_them_in_full() {
    let record = record(|_| ());
    let tables = |full| {
        let shown = Report::new(&record).full(full).to_string();
        shown.lines().filter(|line| line.contains("order ") && !line.contains(" the order")).count()
    };
    assert_eq!(tables(false), 1, "one order");
    assert!(tables(true) >= 3, "{}", tables(true));
    let shown = Report::new(&record).to_string();
    for group in ["order devices-first", "vcpus 128, zap all-roots", "format EPT"] {
        assert!(shown.contains(group), "{group}");
    }
    assert!(shown.contains("memory 16 GiB") && !shown.contains("vcpus 64, zap"), "{shown}");
}

#[test]
fn what_counts_and_what_is_a_time_is_known_before_it_is_measured() {
    for row in &record(|_| ()).results {
        let known = experiments().iter().find(|known| known.name() == row.experiment).unwrap();
        for (name, summary) in &row.metrics {
            let counts = known.counts().contains(&name.as_str());
            let is_time = summary.unit == mayfly_record::Unit::Nanoseconds;
            assert_ne!(counts, is_time, "{name} of {}", row.experiment);
        }
    }
}
