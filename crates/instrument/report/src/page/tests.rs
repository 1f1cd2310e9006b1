use mayfly_record::{
    Backend, Description, Host, MetricDescription, ResultRow, Samples, Summary, units,
};

use super::*;
use crate::value::whole;

fn samples(ns: u64) -> Samples {
    let mut samples = Samples::default();
    for i in 0..400 {
        samples.record_ns(ns + i * ns / 1000);
        if i % 20 == 19 {
            samples.end_round();
        }
    }
    samples
}

fn row(variant: &str, vcpus: u32, ns: u64) -> ResultRow {
    ResultRow::new("slot-delete", Backend::Machine, variant)
        .param("vcpus", vcpus)
        .metric("delete", &samples(ns))
        .metric("create", &samples(ns / 3))
        .counter("tlb_invalidations", 4711)
        .check("reads_correct", true, "0 of 9 reads")
        .finding("stale_in_own-writes", "0x0 instead of 0x15")
}

fn record() -> Record {
    let metric = |name: &str, headline| MetricDescription {
        name: name.to_owned(),
        summary: format!("what {name} takes"),
        headline,
    };
    let described = Description {
        name: "slot-delete".to_owned(),
        summary: "a memslot goes".to_owned(),
        metrics: vec![metric("delete", true), metric("create", false)],
        answer: vec!["Nobody waits.".to_owned()],
        ..Description::default()
    };
    let results = vec![
        row("write-locked", 4, 2_000_000),
        row("write-locked", 64, 70_000_000),
        row("mayfly", 4, 9_000),
        row("mayfly", 64, 11_000),
        ResultRow::new("slot-delete", Backend::Kvm, "kernel").skipped("there is no /dev/kvm"),
    ];
    let host = Host {
        kernel: "6.18.0".into(),
        arch: "x86_64".into(),
        command: "mayfly run slot-delete --vcpus 4,64".into(),
        microcode: Some("0xa10113e".into()),
        ..Host::default()
    };
    Record::new(host, results).describing([described])
}

fn page(records: &[Record]) -> String {
    Page::new(records).to_string()
}

/// The text of a page, without its tags and what is in them.
fn text(page: &str) -> String {
    let body = page.split_once("<body>").unwrap().1;
    body.split('<').filter_map(|part| Some(part.split_once('>')?.1)).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_number_of_every_summary_is_on_the_page() {
    let record = record();
    let text = text(&page(std::slice::from_ref(&record)));
    for row in record.results.iter().filter(|row| row.skipped.is_none()) {
        for Summary { unit, count, min, p50, p50_interval, p90, p99, max, mean, .. } in
            row.metrics.values()
        {
            let numbers = [*min, *p50, p90.unwrap(), p99.unwrap(), *max, whole(*mean)];
            for number in numbers.into_iter().chain(p50_interval.unwrap()) {
                let number = unit.shown(number);
                assert!(text.contains(&number), "{number} of {}", row.variant);
            }
            assert!(text.contains(&format!("\n{}\n", units::grouped(*count))));
        }
    }
    for said in [
        "4,711",
        "0 of 9 reads",
        "0x0 instead of 0x15",
        "there is no /dev/kvm",
        "Nobody waits.",
        "0xa10113e",
        "mayfly run slot-delete --vcpus 4,64",
        "what create takes",
    ] {
        assert!(text.contains(said), "{said}");
    }
}

#[test]
fn headlines_are_pictured_and_so_is_what_grows_with_vcpus() {
    let page = page(&[record()]);
    assert_eq!(page.matches("<figure class=\"strips\">").count(), 1);
    assert_eq!(page.matches("<figure class=\"scaling\">").count(), 1);
    assert_eq!(page.matches("<polyline class=\"line own0\"").count(), 2, "the line and its legend");
}

#[test]
fn a_page_needs_nothing_beside_itself_and_runs_nothing() {
    let page = page(&[record()]);
    for outside in ["http:", "https:", "<script", "<link", "<img", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn whatever_a_record_says_is_text() {
    let hostile = "<script>alert(1)</script>\"'&";
    let mut record = record();
    record.host.kernel = hostile.to_owned();
    record.experiments[0].answer = vec![hostile.to_owned()];
    record.results[0].variant = hostile.to_owned();
    record.results[1].params.insert(hostile.to_owned(), hostile.into());
    let row = record.results[2].clone().metric(hostile, &samples(7)).check(hostile, false, hostile);
    record.results[2] = row;
    record.partial = Some(hostile.to_owned());
    let page = page(&[record]);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
}

#[test]
fn records_side_by_side_have_letters_and_are_compared_with_their_own() {
    let (first, mut second) = (record(), record());
    for row in &mut second.results {
        if row.variant == "mayfly" {
            *row = row.clone().metric("delete", &samples(9_000_000));
        }
    }
    let page = text(&page(&[first, second]));
    assert!(
        page.contains("A mayfly") && page.contains("B mayfly") && page.contains("B write-locked")
    );
    assert!(page.contains("222x"), "the first's write-locked beside the first's mayfly");
    assert!(page.contains("0.222x"), "the second's beside the second's");
}

#[test]
fn a_record_of_nothing_is_a_page_of_its_host() {
    let page =
        text(&page(&[Record::new(Host { kernel: "7.1".into(), ..Host::default() }, Vec::new())]));
    assert!(page.contains("Mayfly on Linux 7.1"));
}

#[test]
fn a_wide_table_scrolls_by_itself_by_keys_too_and_says_so() {
    let page = page(&[record()]);
    let tables = page.matches("<table class=\"numbers\">").count();
    assert!(tables > 0);
    assert_eq!(page.matches("role=\"region\"").count(), tables);
    assert_eq!(page.matches("tabindex=\"0\"").count(), tables);
    assert_eq!(page.matches("<p class=\"hint\"").count(), tables);
    assert!(page.contains("aria-label=\"measured: vcpus 4\""), "{page}");
}

#[test]
fn the_rows_of_a_variant_stand_one_below_the_other_whatever_record_they_are_of() {
    let page = page(&[record(), record()]);
    let rows = page.split("<th scope=\"row\">").skip(1);
    let labels: Vec<&str> = rows.filter_map(|row| row.split('<').next()).collect();
    let labels: Vec<&str> = labels.into_iter().filter(|label| !label.is_empty()).collect();
    assert!(labels.len() > 8, "{labels:?}");
    for pair in labels.chunks(2) {
        assert_eq!((&pair[0][..2], &pair[1][..2], &pair[0][2..]), ("A ", "B ", &pair[1][2..]));
    }
}
