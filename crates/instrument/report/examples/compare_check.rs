//! Whether `mayfly compare` keeps its promise on this host: `compare_check DIRECTORY`, with pairs of records of the same
//! build, `1a.json` and `1b.json` and so on. `make compare-check` makes them.
//!
//! Of all comparisons of a pair at most one in a hundred may be called different. A slowdown of a fifth that is planted in
//! the second of a pair has to be found in the metrics that are steady: whose medians spread by less than 3 % over all runs,
//! and whose rounds hardly differ. Of those whose rounds differ, more rounds would have to be measured.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use mayfly_record::{Record, ResultRow, Samples, Unit};
use mayfly_report::{Comparison, Line, Verdict};

/// Comparisons of the same build that may be called different.
const FALSE: f64 = 0.01;

/// The spread of a steady metric's medians, as a standard deviation of their logarithms.
const STEADY: f64 = 0.03;

/// The share of what is planted that has to be found in steady metrics.
const FOUND: f64 = 0.9;

/// What is planted.
const SLOWER: f64 = 1.2;

fn main() -> ExitCode {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "target/compare-check".to_owned());
    match checked(Path::new(&directory)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("compare_check: {error}");
            ExitCode::from(2)
        }
    }
}

fn checked(directory: &Path) -> Result<bool, Box<dyn Error>> {
    let mut pairs = Vec::new();
    for number in 1.. {
        let [base, new] = ["a", "b"].map(|side| directory.join(format!("{number}{side}.json")));
        if !base.exists() {
            break;
        }
        pairs.push((Record::read(&base)?, Record::read(&new)?));
    }
    let spread = spread(pairs.iter().flat_map(|(base, new)| [base, new]));
    let (mut compared, mut different) = (0_u32, Vec::new());
    // How many there are, and in how many the planted one was found.
    let (mut steady, mut by_runs, mut others) = ((0_u32, 0_u32), (0_u32, 0_u32), (0_u32, 0_u32));
    for (number, (base, new)) in (1..).zip(&pairs) {
        for line in Comparison::of(base, new)?.lines() {
            compared += 1;
            if line.verdict != Verdict::CannotTell {
                different.push(format!("pair {number}: {}: {:?}", name(line), line.ratio));
            }
        }
        let planted = slower(new);
        for line in Comparison::of(base, &planted)?.lines().iter().filter(|line| is_time(line)) {
            let is_near = spread.get(&name(line)).is_some_and(|spread| *spread < STEADY);
            let (all, found) = match (is_near, line.is_steady) {
                (true, true) => &mut steady,
                (true, false) => &mut by_runs,
                (false, _) => &mut others,
            };
            *all += 1;
            *found += u32::from(line.is_regression());
        }
    }
    for line in &different {
        println!("called different: {line}");
    }
    let share = |part: u32, of: u32| f64::from(part) / f64::from(of.max(1));
    let wrong = u32::try_from(different.len())?;
    println!(
        "{} pairs of the same build: {wrong} of {compared} comparisons called different ({:.2} %, at most {:.0} % may be)",
        pairs.len(),
        100.0 * share(wrong, compared),
        100.0 * FALSE
    );
    println!("planted, a fifth slower, and found:");
    for (group, (all, found)) in [
        ("of metrics whose runs differ by less than 3 %, and whose rounds hardly do", steady),
        ("of those whose runs differ by less than 3 %, but whose rounds differ", by_runs),
        ("of the others, where it cannot be told else", others),
    ] {
        println!("  in {found} of {all} comparisons {group}");
    }
    Ok(!pairs.is_empty() && share(wrong, compared) <= FALSE && share(steady.1, steady.0) >= FOUND)
}

fn is_time(line: &Line<'_>) -> bool {
    *line.unit == Unit::Nanoseconds && line.ratio.is_some()
}

fn name(line: &Line<'_>) -> String {
    named(line.base, line.metric)
}

fn named(row: &ResultRow, metric: &str) -> String {
    let mut params = row.params.clone();
    params.remove("seed");
    format!("{}.{}.{}.{metric} {params:?}", row.experiment, row.backend, row.variant)
}

/// How much the medians of each metric differ between runs.
fn spread<'a>(records: impl Iterator<Item = &'a Record>) -> BTreeMap<String, f64> {
    let mut logs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in records.flat_map(|record| &record.results) {
        for (metric, summary) in row.metrics.iter().filter(|(_, summary)| summary.p50 > 0) {
            logs.entry(named(row, metric)).or_default().push((summary.p50 as f64).ln());
        }
    }
    let deviation = |logs: Vec<f64>| {
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        (squares / (logs.len() - 1).max(1) as f64).sqrt()
    };
    logs.into_iter().map(|(name, logs)| (name, deviation(logs))).collect()
}

/// The record as if every time in it had been a fifth longer.
#[expect(clippy::cast_sign_loss, reason = "times are not below 0")]
fn slower(record: &Record) -> Record {
    let mut record = record.clone();
    for row in &mut record.results {
        for (name, summary) in row.metrics.clone() {
            if summary.unit != Unit::Nanoseconds {
                continue;
            }
            let rounds: Vec<Vec<u64>> = row.rounds(&name).to_vec();
            let rounds: Vec<Vec<u64>> = rounds
                .into_iter()
                .map(|round| {
                    round.into_iter().map(|ns| (ns as f64 * SLOWER).round() as u64).collect()
                })
                .collect();
            let samples = Samples::of_rounds(Unit::Nanoseconds, rounds.iter().map(Vec::as_slice));
            row.histograms.remove(&name);
            *row = row.clone().metric(&name, &samples);
        }
    }
    record
}
