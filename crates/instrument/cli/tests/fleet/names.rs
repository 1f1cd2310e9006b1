//! Names that stand in a file of `packaging`: each is that of something which is there.

use std::collections::BTreeSet;

use crate::packaged::{of_dashboard, queries, text};
use crate::{exposed, packaged};

const RULES: &str = "prometheus/mayfly.rules.yml";

/// The metrics of a text, by their samples.
fn written(text: &str) -> BTreeSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| Some(line.split(['{', ' ']).next()?.to_owned())).collect()
}

/// Names of series in an expression: `mayfly_...`, and those with colons that rules record.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let is_series = |word: &&str| word.trim_matches(':').contains("mayfly_");
    words.filter(is_series).map(|word| word.trim_matches(':').to_owned()).collect()
}

/// The values of a key in a file of rules.
fn values(rules: &str, key: &str) -> BTreeSet<String> {
    let lines = rules.lines().map(|line| line.trim_start().trim_start_matches("- "));
    lines.filter_map(|line| Some(line.strip_prefix(key)?.trim().to_owned())).collect()
}

fn all_written() -> BTreeSet<String> {
    let mut all = written(&exposed::doctor(true));
    all.extend(written(&exposed::watch()));
    all
}

#[test]
fn every_series_of_a_rule_and_of_the_dashboard_is_one_that_mayfly_writes_or_a_rule_records() {
    let rules = text(RULES);
    let recorded = values(&rules, "record:");
    let known: BTreeSet<String> = all_written().union(&recorded).cloned().collect();
    assert!(recorded.len() >= 5 && known.len() >= recorded.len() + 14, "{known:?}");
    let all = |texts: Vec<String>| texts.iter().flat_map(|text| named(text)).collect();
    let of_rules: BTreeSet<String> = all(values(&rules, "expr:").into_iter().collect());
    let of_panels: BTreeSet<String> = all([queries(), of_dashboard("query")].concat());
    let tests = text("prometheus/mayfly.rules.test.yml");
    let of_tests = named(&tests).into_iter().filter(|name| !name.starts_with("mayfly.")).collect();
    for (file, series) in [("rules", &of_rules), ("dashboard", &of_panels), ("tests", &of_tests)] {
        let unknown: Vec<_> = series.difference(&known).collect();
        assert!(!series.is_empty() && unknown.is_empty(), "{file}: {unknown:?}");
    }
    // What is written and shown nowhere would be missed by nobody.
    let shown: BTreeSet<String> = of_rules.union(&of_panels).cloned().collect();
    let unseen: Vec<_> = known.difference(&shown).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn every_alert_and_every_record_has_a_case_in_the_test_of_the_rules() {
    let (rules, tests) = (text(RULES), text("prometheus/mayfly.rules.test.yml"));
    let tested = values(&tests, "alertname:");
    assert_eq!(values(&rules, "alert:"), tested);
    assert_eq!(values(&rules, "record:"), values(&tests, "expr:"));
}

#[test]
fn every_probe_that_a_query_names_is_one_of_the_doctor_s() {
    let mut count = 0;
    for query in queries() {
        let Some((_, labels)) = query.split_once("probe=\"") else { continue };
        let parts: Vec<&str> = labels.split('"').collect();
        assert_eq!(parts[1], ",metric=", "{query}");
        let is_there =
            |(probe, metric): &(&str, String)| (*probe, metric.as_str()) == (parts[0], parts[2]);
        assert!(mayfly_doctor::metrics().iter().any(is_there), "{query}");
        count += 1;
    }
    assert_eq!(count, 2);
}

#[test]
fn the_pages_have_every_metric_in_their_tables() {
    let pages = [
        include_str!("../../../../../docs/doctor.md"),
        include_str!("../../../../../docs/watch.md"),
    ];
    for name in all_written() {
        let (page, short) = match name.strip_prefix("mayfly_doctor_") {
            Some(short) => (pages[0], short),
            None => (pages[1], name.strip_prefix("mayfly_watch_").unwrap()),
        };
        assert!(page.contains(&format!("`{short}`")), "{name}");
    }
}

#[test]
fn the_image_and_the_pods_are_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let pods = text("kubernetes/mayfly.yaml");
    let images = values(&pods, "image:");
    assert_eq!(images, BTreeSet::from([format!("mayfly:{version}")]));
    let image = text("kubernetes/Containerfile");
    for part in [format!("-t mayfly:{version} "), format!("BINARY=mayfly-{version}-x86_64\n")] {
        assert!(image.contains(&part), "{part}");
    }
    assert!(packaged::path("kubernetes/Containerfile").is_file());
}
