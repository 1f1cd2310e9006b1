//! Repeats an experiment until its figures are as precise as the user wants.
//!
//! Each pass is the whole experiment, variants in turn, so that a drift of the host affects all variants alike. After one
//! pass, two, four and so on, this module looks whether the confidence interval of every headline is narrow enough. It
//! does not look after each pass: with enough looks, an interval is narrow at one of them by chance. The time limit may
//! end the passes at any pass, because it depends on no figure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mayfly_record::{Goal, Passes, ResultRow, Samples, Widest};

use crate::experiment::Experiment;

/// Passes of one experiment, of which the first is over.
pub(crate) struct Repetition {
    goal: Goal,
    /// When there is no more time for this experiment.
    share: Duration,
    begun: Instant,
    count: u32,
    /// Passes after which it is looked next.
    look_at: u32,
    done: Passes,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another pass; so many are to come before the next look.
    Pass(u32),
    /// It is enough, or there is no more time.
    End,
}

impl Repetition {
    /// Of an experiment that has begun at a time, may take so long in all, and has come to `rows` in its first pass.
    pub(crate) fn after_first(
        experiment: &dyn Experiment,
        rows: &[ResultRow],
        goal: Goal,
        share: Duration,
        begun: Instant,
    ) -> Self {
        let mut this = Self {
            goal,
            share,
            begun,
            count: 1,
            look_at: 1,
            done: look(experiment, rows, goal, 1),
        };
        this.prepare();
        this
    }

    /// What to do, after so long since it has begun.
    pub(crate) fn next_at(&self, elapsed: Duration) -> Next {
        let fits = elapsed + elapsed / self.count <= self.share;
        if self.done.reached || !fits || self.goal.is_once() {
            return Next::End;
        }
        Next::Pass(self.look_at - self.count)
    }

    pub(crate) fn next(&self) -> Next {
        self.next_at(self.begun.elapsed())
    }

    /// One more pass is over, and `rows` are what it has come to with all before.
    pub(crate) fn passed(&mut self, experiment: &dyn Experiment, rows: &[ResultRow]) {
        self.count += 1;
        if self.count == self.look_at {
            self.done = look(experiment, rows, self.goal, self.count);
            self.prepare();
        }
    }

    fn prepare(&mut self) {
        self.look_at = self.count.saturating_mul(2);
    }

    /// What is known the least, as of the last look.
    pub(crate) fn widest(&self) -> Option<&Widest> {
        self.done.widest.as_ref()
    }

    /// What it has come to so far.
    pub(crate) fn so_far(&self, experiment: &dyn Experiment, rows: &[ResultRow]) -> Passes {
        look(experiment, rows, self.goal, self.count)
    }
}

/// Whether every headline of `rows` is known as well as is wanted, and which is known the least.
fn look(experiment: &dyn Experiment, rows: &[ResultRow], goal: Goal, count: u32) -> Passes {
    let metrics = experiment.describe().metrics;
    let headlines: Vec<&str> =
        metrics.iter().filter(|metric| metric.headline).map(|metric| &*metric.name).collect();
    let is_headline = |name: &str| headlines.is_empty() || headlines.contains(&name);
    let mut widest: Option<Widest> = None;
    // None, below six rounds, is wider than anything.
    let width = |of: &Widest| of.half_width.unwrap_or(f64::INFINITY);
    for row in rows {
        for (name, summary) in &row.metrics {
            if !is_headline(name) || row.uncompared.contains(name) {
                continue;
            }
            let one = Widest { what: told(row, name), half_width: summary.half_width() };
            if widest.as_ref().is_none_or(|widest| width(widest) < width(&one)) {
                widest = Some(one);
            }
        }
    }
    let is_narrow = |precision| widest.as_ref().is_none_or(|widest| width(widest) <= precision);
    // Without a precision, all the time there is gets used.
    Passes { count, reached: goal.precision.is_some_and(is_narrow), widest }
}

/// A metric of a row, for a person: without what all rows of a run have alike.
fn told(row: &ResultRow, metric: &str) -> String {
    let varies =
        |name: &&String| ["order", "memory", "mapping", "vcpus", "zap"].contains(&name.as_str());
    let params = row.params.iter().filter(|(name, _)| varies(name));
    let params =
        params.map(|(name, value)| match (name.as_str(), value.as_u64(), value.as_str()) {
            ("memory", Some(bytes), _) => mayfly_record::units::bytes(bytes),
            (name, Some(number), _) => format!("{name} {number}"),
            (_, _, Some(text)) => text.to_owned(),
            _ => value.to_string(),
        });
    let all: Vec<String> =
        [format!("{} on {}", row.variant, row.backend)].into_iter().chain(params).collect();
    format!("{metric} of {}", all.join(", "))
}

/// The rows of passes so far, with those of one more. `levels` are counters that are no totals.
pub(crate) fn joined(
    rows: Vec<ResultRow>,
    more: Vec<ResultRow>,
    levels: &[&str],
) -> Vec<ResultRow> {
    let mut more: Vec<Option<ResultRow>> = more.into_iter().map(Some).collect();
    let mut all: Vec<ResultRow> = rows
        .into_iter()
        .map(|row| {
            let is_it = |other: &&mut Option<ResultRow>| {
                other.as_ref().is_some_and(|other| is_same(&row, other))
            };
            match more.iter_mut().find(is_it).and_then(Option::take) {
                Some(other) => both(row, other, levels),
                None => row,
            }
        })
        .collect();
    all.extend(more.into_iter().flatten());
    all
}

/// Whether two rows are of the same variant and parameters; the seed is chance.
fn is_same(row: &ResultRow, other: &ResultRow) -> bool {
    let of = |row: &ResultRow| {
        let mut params = row.params.clone();
        params.remove("seed");
        (row.experiment.clone(), row.backend, row.variant.clone(), params)
    };
    of(row) == of(other)
}

fn both(mut row: ResultRow, other: ResultRow, levels: &[&str]) -> ResultRow {
    if row.skipped.is_some() {
        return other;
    }
    if other.skipped.is_some() {
        return row;
    }
    let names: BTreeSet<&String> = row.metrics.keys().chain(other.metrics.keys()).collect();
    let mut metrics = Vec::new();
    for name in names {
        let unit = row.metrics.get(name).or(other.metrics.get(name)).map(|of| of.unit.clone());
        let (first, second) = (row.rounds(name), other.rounds(name));
        let rounds = first.iter().chain(second.iter()).map(Vec::as_slice);
        metrics.push((name.clone(), Samples::of_rounds(unit.unwrap_or_default(), rounds)));
    }
    for (name, samples) in metrics {
        row = row.metric(&name, &samples);
    }
    row.uncompared.extend(other.uncompared);
    for (work, states) in other.start {
        row.start.entry(work).or_default().extend(states);
    }
    for (name, count) in other.counters {
        let is_level = name.starts_with("peak_") || levels.contains(&name.as_str());
        let own = row.counters.entry(name).or_default();
        *own = if is_level { (*own).max(count) } else { own.saturating_add(count) };
    }
    // One that failed once has failed.
    for check in other.checks {
        match row.checks.iter_mut().find(|own| own.name == check.name) {
            Some(own) if own.ok => *own = check,
            Some(_) => {}
            None => row.checks.push(check),
        }
    }
    for finding in other.findings {
        if !row.findings.contains(&finding) {
            row.findings.push(finding);
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use mayfly_record::{Backend, Host};

    use super::*;
    use crate::course::Course;
    use crate::experiment::{Metric, Param, Request, Variant};
    use crate::needs::Needs;
    use crate::plan::{Plan, Selection};
    use crate::progress::{Progress, Silent};

    /// Ten rounds a pass, whose samples spread by `spread` around 10,000, with a seed that goes on.
    struct Feigned {
        spread: u64,
        passes: Cell<u64>,
        slow: Duration,
        fails_at: u64,
    }

    // SAFETY: a test's own, on one thread.
    unsafe impl Sync for Feigned {}

    impl Experiment for Feigned {
        fn name(&self) -> &'static str {
            "spread"
        }
        fn summary(&self) -> &'static str {
            ""
        }
        fn about(&self) -> &'static str {
            ""
        }
        fn variants(&self) -> &'static [Variant] {
            &[Variant { backend: Backend::Machine, name: Variant::BASELINE, summary: "" }]
        }
        fn metrics(&self) -> &'static [Metric] {
            &[Metric { name: "known", summary: "" }, Metric { name: "wild", summary: "" }]
        }
        fn headlines(&self) -> &'static [&'static str] {
            &["known"]
        }
        fn params(&self) -> &'static [Param] {
            &[]
        }
        fn needs(&self, _request: &Request<'_>) -> Needs {
            Needs { time: Duration::from_secs(1), ..Needs::default() }
        }
        fn run(
            &self,
            request: &Request<'_>,
            _progress: &mut dyn Progress,
        ) -> anyhow::Result<Vec<ResultRow>> {
            let pass = self.passes.replace(self.passes.get() + 1);
            anyhow::ensure!(pass != self.fails_at, "tired");
            std::thread::sleep(self.slow);
            assert_eq!(u64::from(request.pass), pass);
            let mut chance = mayfly_record::Chance::new(pass + 1);
            let mut samples = |spread: u64| {
                let mut samples = Samples::default();
                for _ in 0..10 {
                    samples.record_ns(10_000 + chance.below(u128::from(spread) + 1));
                    samples.end_round();
                }
                samples
            };
            Ok(vec![
                ResultRow::new("spread", Backend::Machine, "mayfly")
                    .param("seed", pass)
                    .began("pass", [("slots".to_owned(), 1)].into())
                    .metric("known", &samples(self.spread))
                    .metric("wild", &samples(1_000_000))
                    .counter("total", 3)
                    .counter("peak_total", 10_u64.saturating_sub(pass))
                    .check("held", pass != 1, format!("pass {pass}")),
            ])
        }
    }

    fn experiment(spread: u64) -> Feigned {
        let (passes, slow) = (Cell::new(0), Duration::ZERO);
        Feigned { spread, passes, slow, fails_at: u64::MAX }
    }

    fn ran(experiment: &Feigned, goal: Goal) -> crate::course::Outcome {
        let host = Host::default();
        let selection = Selection { goal, ..Selection::default() };
        let plan = Plan::new(&[experiment], &selection, &host).unwrap();
        let course = Course::default();
        plan.run(&course, &mut Silent);
        course.outcome()
    }

    fn precision(precision: f64) -> Goal {
        Goal { precision: Some(precision), seconds: Some(600.0) }
    }

    #[test]
    fn passes_double_until_the_headlines_are_known_and_no_further() {
        let experiment = experiment(4_000);
        let outcome = ran(&experiment, precision(0.03));
        let passes = &outcome.passes["spread"];
        assert!(passes.reached && passes.count.is_power_of_two() && passes.count > 1, "{passes:?}");
        assert!(passes.count < 64, "the metric that is no headline was waited for: {passes:?}");
        assert_eq!(experiment.passes.get(), u64::from(passes.count));
        let row = &outcome.rows[0];
        assert_eq!(row.metrics["known"].rounds, 10 * u64::from(passes.count));
        assert!(row.metrics["known"].half_width().unwrap() <= 0.03);
        assert_eq!(row.counters["total"], 3 * u64::from(passes.count));
        assert_eq!((row.counters["peak_total"], &row.params["seed"]), (10, &0.into()));
        assert_eq!(row.checks.len(), 2, "its own, and that it begins as others do");
        assert_eq!((row.checks[0].ok, &*row.checks[0].detail), (false, "pass 1"));
        assert_eq!(passes.widest.as_ref().unwrap().what, "known of mayfly on machine");
    }

    #[test]
    fn what_is_known_at_once_is_gone_through_once_and_so_is_what_nobody_wants_more_of() {
        for (spread, goal) in [(0, precision(0.01)), (4_000, Goal::default())] {
            let experiment = experiment(spread);
            let outcome = ran(&experiment, goal);
            assert_eq!(experiment.passes.get(), 1);
            assert_eq!(outcome.passes.is_empty(), goal.is_once());
        }
    }

    #[test]
    fn time_ends_it_and_the_record_says_that_it_was_not_reached() {
        let slow = Duration::from_millis(20);
        let experiment = Feigned { slow, ..experiment(9_000) };
        let goal = Goal { precision: Some(1e-6), seconds: Some(0.3) };
        let outcome = ran(&experiment, goal);
        let passes = &outcome.passes["spread"];
        assert!(!passes.reached && passes.count <= 15, "{passes:?}");
        assert_eq!(experiment.passes.get(), u64::from(passes.count));
        let once = Feigned { slow, ..self::experiment(9_000) };
        let goal = Goal { precision: Some(1e-6), seconds: Some(0.001) };
        assert_eq!(ran(&once, goal).passes["spread"].count, 1, "and no less than once");
    }

    #[test]
    fn time_is_looked_at_before_each_pass_and_figures_after_each_doubling() {
        let repetition = |count, look_at, reached| Repetition {
            goal: precision(0.01),
            share: Duration::from_secs(100),
            begun: Instant::now(),
            count,
            look_at,
            done: Passes { count, reached, widest: None },
        };
        let next = |one: Repetition, seconds| one.next_at(Duration::from_secs(seconds));
        assert_eq!(next(repetition(4, 8, false), 80), Next::Pass(4));
        assert_eq!(next(repetition(5, 8, false), 83), Next::Pass(3));
        assert_eq!(next(repetition(4, 8, false), 81), Next::End, "the fifth would end at 101 s");
        assert_eq!(next(repetition(4, 8, true), 1), Next::End);
        let mut under_way = repetition(4, 8, false);
        let known = experiment(0);
        under_way.passed(&known, &[]);
        assert!(!under_way.done.reached, "nobody looks after the fifth");
        (0..3).for_each(|_| under_way.passed(&known, &[]));
        assert!(under_way.done.reached, "of nothing, nothing is unknown");
    }

    #[test]
    fn what_a_later_pass_fails_at_leaves_the_rows_of_those_before() {
        let experiment = Feigned { fails_at: 3, ..experiment(9_000) };
        let outcome = ran(&experiment, precision(1e-6));
        assert_eq!(outcome.rows[0].metrics["known"].rounds, 30);
        assert_eq!(outcome.failures[0].why, "tired");
        assert_eq!(outcome.passes["spread"].count, 3);
    }
}
