//! The end of a run, complete or not: writes the record, prints the report, and finds the exit code.

use mayfly_lab::{Answer, Outcome, answer, experiments};
use mayfly_record::{Begun, Description, Goal, Host, Record, ResultRow, Sink};
use mayfly_report::{Report, Threshold};

use crate::failure::{Failure, and_more};
use crate::output::Stream;

/// What is known from the beginning of how a run is to end.
pub(crate) struct Conclusion {
    pub(crate) host: Host,
    pub(crate) begun: Begun,
    pub(crate) goal: Goal,
    pub(crate) experiments: Vec<Description>,
    pub(crate) sink: Option<Sink>,
    pub(crate) quiet: bool,
    /// Whether everything is shown.
    pub(crate) full: bool,
    /// What figures are held against.
    pub(crate) fail_if: Vec<Threshold>,
    /// Whether the user asked for something by its name, and not for whatever there is.
    pub(crate) by_name: bool,
}

/// Why a run is not all that was asked for, where it ends before its first experiment begins.
pub(crate) const NOTHING: &str = "nothing had begun";

impl Conclusion {
    /// Keeps and prints what a run came to.
    pub(crate) fn of_run(&self, outcome: &Outcome) -> Result<(), Failure> {
        let record = self.record(outcome);
        self.tell(&record)?;
        match record.partial.clone() {
            Some(why) => Err(Failure::runtime(why)),
            None => self.verdict(&record),
        }
    }

    /// Keeps and prints what there is of a run that ends early. Where nothing is done there is nothing to print, and what
    /// is kept says no more than why; an earlier record is worth more than that, and stays.
    pub(crate) fn of_part(&self, outcome: &Outcome) -> Result<(), Failure> {
        let mut record = self.record(outcome);
        record.partial.get_or_insert_with(|| NOTHING.to_owned());
        match &self.sink {
            _ if !outcome.rows.is_empty() => self.tell(&record),
            Some(sink) if sink.would_replace() => Stream::Err.write(
                "mayfly: no experiment has finished, so the earlier record in that file is kept\n",
            ),
            Some(sink) => sink.write(&record.to_json()).map_err(Failure::runtime),
            None => Ok(()),
        }
    }

    fn record(&self, outcome: &Outcome) -> Record {
        let told = self.experiments.iter().map(|experiment| {
            let Answer { lines, verdict, by } =
                answer(experiments(), &experiment.name, &outcome.rows, &self.host);
            Description {
                answer: lines,
                verdict,
                answered_by: by,
                passes: outcome.passes.get(&*experiment.name).cloned(),
                ..experiment.clone()
            }
        });
        let mut record = Record::new(self.host.clone(), outcome.rows.clone()).describing(told);
        record.conditions = Some(self.begun.until_now());
        record.goal = (!self.goal.is_once()).then_some(self.goal);
        record.partial = outcome.partial();
        record
    }

    fn tell(&self, record: &Record) -> Result<(), Failure> {
        keep_and_print(record, self.sink.as_ref(), self.quiet, |stream| {
            let report = Report::new(record).full(self.full);
            report.colour(stream.colour()).width(stream.width()).to_string()
        })
    }

    /// Whether what ran also gave right results: the exit code has to say so.
    fn verdict(&self, record: &Record) -> Result<(), Failure> {
        let mut failed = record.failed_checks();
        if let Some((row, check)) = failed.next() {
            let more = and_more(failed.count());
            let ResultRow { experiment, variant, .. } = row;
            return Err(Failure::runtime(format_args!(
                "a check failed: {experiment}, {variant}: {}{more}",
                check.name
            )));
        }
        let mut skipped = record.results.iter().map(|row| row.skipped.as_deref());
        match record.results.first() {
            Some(row) if self.by_name && skipped.all(|why| why.is_some()) => {
                let why = row.skipped.as_deref().unwrap_or_default();
                Err(Failure::nothing_ran(format_args!(
                    "{}, {}: {why}",
                    row.experiment, row.variant
                )))
            }
            _ => self.thresholds(record),
        }
    }

    /// Whether every figure is on the right side of every bound.
    fn thresholds(&self, record: &Record) -> Result<(), Failure> {
        for threshold in &self.fail_if {
            let violations = threshold.violations(record).map_err(|error| {
                let skipped = record.results.iter().find_map(|row| row.skipped.as_deref());
                match skipped {
                    Some(why) => Failure::nothing_ran(format_args!("{threshold}: {why}")),
                    None => Failure::usage(error.to_string()),
                }
            })?;
            if let Some(first) = violations.first() {
                let more = and_more(violations.len() - 1);
                let what = &first.what;
                return Err(Failure::runtime(format_args!("{threshold}: {what}{more}")));
            }
        }
        Ok(())
    }
}

/// Writes a record where it is to go, and prints what is to be said of it: also if the record cannot be kept, for the run
/// may have been long. Where the record has standard output, the other stream has that, unless it is to be quiet.
pub(crate) fn keep_and_print(
    record: &Record,
    sink: Option<&Sink>,
    quiet: bool,
    told: impl FnOnce(Stream) -> String,
) -> Result<(), Failure> {
    let kept = sink.map_or(Ok(()), |sink| sink.write(&record.to_json()));
    let to_stdout = sink.is_some_and(Sink::is_stdout);
    if !(to_stdout && quiet) {
        let stream = if to_stdout { Stream::Err } else { Stream::Out };
        stream.write(&told(stream))?;
    }
    kept.map_err(Failure::runtime)
}

#[cfg(test)]
mod tests {
    use mayfly_record::Backend;

    use super::*;

    fn row() -> ResultRow {
        ResultRow::new("teardown", Backend::Machine, "mayfly")
    }

    fn verdict(rows: Vec<ResultRow>, by_name: bool) -> Result<(), Failure> {
        let (host, experiments) = (Host::default(), Vec::new());
        let begun = Begun::now();
        let conclusion = Conclusion {
            host,
            begun,
            goal: Goal::default(),
            experiments,
            sink: None,
            quiet: true,
            full: false,
            fail_if: Vec::new(),
            by_name,
        };
        conclusion.verdict(&Record::new(Host::default(), rows))
    }

    fn checked(checks: &[(&str, bool)]) -> Vec<ResultRow> {
        vec![checks.iter().fold(row(), |row, (name, ok)| row.check(name, *ok, "as it was"))]
    }

    #[test]
    fn a_run_whose_checks_are_all_well_succeeds() {
        assert_eq!(verdict(checked(&[]), true), Ok(()));
        let well = checked(&[("guest_reads", true), ("no_line_cleaned", true)]);
        assert_eq!(verdict(well, true), Ok(()));
    }

    #[test]
    fn a_run_with_a_failed_check_fails_and_names_it() {
        let one = verdict(checked(&[("guest_reads", true), ("no_line_cleaned", false)]), false);
        let message = "a check failed: teardown, mayfly: no_line_cleaned";
        assert_eq!(one.unwrap_err(), Failure::runtime(message));
        let two = verdict(checked(&[("guest_reads", false), ("no_line_cleaned", false)]), false);
        let message = "a check failed: teardown, mayfly: guest_reads, and 1 more";
        assert_eq!(two.unwrap_err(), Failure::runtime(message));
    }

    #[test]
    fn a_run_of_nothing_that_was_asked_for_by_name_says_so() {
        let skipped = || row().skipped("no room");
        let nothing = Failure::nothing_ran("teardown, mayfly: no room");
        assert_eq!(verdict(vec![skipped(), skipped()], true).unwrap_err(), nothing);
        assert_eq!(verdict(vec![skipped(), row()], true), Ok(()));
        assert_eq!(verdict(vec![skipped(), skipped()], false), Ok(()));
    }
}
