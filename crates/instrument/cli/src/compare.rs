//! `mayfly compare`.

use mayfly_laws::Document;
use mayfly_record::Record;
use mayfly_record::units::ratio;
use mayfly_report::{Comparison, Format, Line, ThresholdError};
use mayfly_trace::Trace;

use crate::args::Compare;
use crate::failure::{Failure, and_more};
use crate::kept::{AllKept, read};
use crate::output::Stream;

/// Compares two records, two traces, or two documents of laws.
pub(crate) fn compare(options: &Compare) -> Result<(), Failure> {
    match read([options.base.as_path(), options.new.as_path()])? {
        AllKept::Records(records) => records_of(&records, options),
        AllKept::Traces(traces) => traces_of(&traces, options),
        AllKept::Laws(laws) => laws_of(&laws, options),
    }
}

/// Fails where one record is slower than the other.
fn records_of(records: &[Record], options: &Compare) -> Result<(), Failure> {
    let [base, new] = records else { return Ok(()) };
    let comparison = Comparison::of(base, new)
        .map_err(|error| Failure::usage(format!("the records cannot be compared: {error}")))?;
    // Before anything is printed: a bound that names nothing is a mistake.
    let slower = regressions(&comparison, options).map_err(|e| Failure::usage(e.to_string()))?;
    let (colour, width) = (Stream::Out.colour(), Stream::Out.width());
    Stream::Out.write(&comparison.shown(options.format, options.full, colour, width))?;
    let Some(first) = slower.first() else { return Ok(()) };
    let more = and_more(slower.len() - 1);
    Err(Failure::runtime(format_args!(
        "{}: {}, {}: {}{more}",
        first.verdict.word(first.unit),
        first.new.experiment,
        first.new.variant,
        first.metric
    )))
}

/// Fails where a trace is beyond a bound: what else it differs by may be chance.
fn traces_of(traces: &[Trace], options: &Compare) -> Result<(), Failure> {
    let [base, new] = traces else { return Ok(()) };
    let comparison = mayfly_trace::Comparison::of(base, new);
    let (row, ratios) = comparison.ratios();
    let mut beyond = Vec::new();
    for threshold in &options.fail_if {
        let mut is_named = false;
        for (name, times) in &ratios {
            let wrong = threshold.is_ratio_wrong(&row, name, *times);
            let wrong = wrong.map_err(|error| Failure::usage(error.to_string()))?;
            is_named |= wrong.is_some();
            if wrong == Some(true) {
                beyond.push(format!("{threshold}: {name} is {} the base's", ratio(*times)));
            }
        }
        if !is_named {
            return Err(Failure::usage(threshold.names_nothing().to_string()));
        }
    }
    Stream::Out.write(&match options.format {
        Format::Text => comparison.text(options.full),
        Format::Markdown => comparison.markdown(options.full),
        Format::Csv => comparison.csv(),
        Format::Json => comparison.json(),
    })?;
    Failure::if_incomplete(&options.fail_if, traces.iter().find_map(Trace::incomplete))?;
    let Some(first) = beyond.first() else { return Ok(()) };
    Err(Failure::runtime(format_args!("{first}{}", and_more(beyond.len() - 1))))
}

/// Fails where a call takes longer beyond doubt, at the first or at the last number that both have measured.
fn laws_of(laws: &[Document], options: &Compare) -> Result<(), Failure> {
    let [base, new] = laws else { return Ok(()) };
    let comparison = mayfly_laws::Comparison::of(base, new)
        .map_err(|error| Failure::usage(format!("the laws cannot be compared: {error}")))?;
    let mut wrong = if options.fail_if.is_empty() { comparison.slower() } else { Vec::new() };
    let ratios = comparison.ratios();
    for threshold in &options.fail_if {
        let mut is_named = false;
        for (row, metric, times, is_sure) in &ratios {
            let is_beyond = threshold.is_ratio_wrong(row, metric, *times);
            let is_beyond = is_beyond.map_err(|error| Failure::usage(error.to_string()))?;
            is_named |= is_beyond.is_some();
            let little = threshold.is_about_too_little();
            if is_beyond == Some(true) && *is_sure && little == (*times < 1.0) {
                let (pair, times) = (&row.experiment, ratio(*times));
                wrong.push(format!("{threshold}: {pair}.{metric} is {times} the base's"));
            }
        }
        if !is_named {
            return Err(Failure::usage(format!(
                "'{threshold}' names no ratio of two laws here; write CALL/WHAT.first, CALL/WHAT.last, first, last or ratio"
            )));
        }
    }
    Stream::Out.write(&match options.format {
        Format::Text => comparison.text(options.full, Stream::Out.width()),
        Format::Markdown => comparison.markdown(options.full),
        Format::Csv => comparison.csv(),
        Format::Json => comparison.json(),
    })?;
    let Some(first) = wrong.first() else { return Ok(()) };
    Err(Failure::runtime(format_args!("{first}{}", and_more(wrong.len() - 1))))
}

/// What is slower, and beyond a bound where there are some. A bound that a ratio has to be above is about what is faster:
/// that is no improvement where less work is done than was meant to be.
fn regressions<'a>(
    comparison: &'a Comparison<'a>,
    options: &Compare,
) -> Result<Vec<&'a Line<'a>>, ThresholdError> {
    let mut named = vec![false; options.fail_if.len()];
    let mut wrong = Vec::new();
    for line in comparison.lines() {
        let mut is_wrong = options.fail_if.is_empty() && line.is_regression();
        for (threshold, named) in options.fail_if.iter().zip(&mut named) {
            let ratio = line.ratio.unwrap_or(1.0);
            if let Some(is_beyond) = threshold.is_ratio_wrong(line.new, line.metric, ratio)? {
                *named = true;
                let little = threshold.is_about_too_little();
                let is_sure = if little { line.is_improvement() } else { line.is_regression() };
                is_wrong |= is_beyond && is_sure;
            }
        }
        if is_wrong {
            wrong.push(line);
        }
    }
    match options.fail_if.iter().zip(named).find(|(_, named)| !named) {
        Some((threshold, _)) => Err(threshold.names_nothing()),
        None => Ok(wrong),
    }
}
