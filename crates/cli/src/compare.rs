//! `mayfly compare`.

use mayfly_report::{Comparison, Line, ThresholdError};

use crate::args::Compare;
use crate::failure::{Failure, and_more};
use crate::output::Stream;
use crate::report::read;

/// Compares two records, and fails where one is slower than the other.
pub(crate) fn compare(options: &Compare) -> Result<(), Failure> {
    let (base, new) = (read(&options.base)?, read(&options.new)?);
    let comparison = Comparison::of(&base, &new)
        .map_err(|error| Failure::usage(format!("not to be compared: {error}")))?;
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
