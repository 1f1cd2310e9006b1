//! Progress as one line for each experiment, where no bar can be drawn.

use std::io::Write;
use std::time::Duration;

use mayfly_record::{Goal, Widest, units};

use crate::progress::Progress;

/// Writes a line when an experiment begins. The lines go to a log, which a user reads when a run takes long.
pub struct Lines<W>(pub W);

impl<W: Write> Progress for Lines<W> {
    fn experiment(&mut self, name: &str, which: usize, of: usize, time: Duration) {
        let time = units::about(time);
        // Progress is no result: a log that cannot be written does not end the run.
        let _ = writeln!(self.0, "mayfly: {name}, {which} of {of}, {time}");
    }

    fn again(&mut self, times: u32, widest: Option<&Widest>, goal: Goal) {
        let wanted = goal.precision.map(|share| format!(", the goal is {}", units::percent(share)));
        let known = widest.map(|widest| {
            let known = widest.half_width.map_or_else(|| "unknown".to_owned(), units::percent);
            format!(": the interval of {} is {known}", widest.what)
        });
        let (known, wanted) = (known.unwrap_or_default(), wanted.unwrap_or_default());
        let passes = if times == 1 { "pass" } else { "passes" };
        let _ = writeln!(self.0, "mayfly: {times} more {passes}{known}{wanted}");
    }

    fn begin(&mut self, _what: &str, _steps: u64) {}
    fn step(&mut self) {}
    fn finish(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_is_one_line_however_many_parts_it_has() {
        let mut text = Vec::new();
        let mut lines = Lines(&mut text);
        lines.experiment("teardown", 2, 5, Duration::from_secs(36));
        for part in 0..3 {
            lines.begin("teardown, 1GiB", part);
            lines.step();
            lines.finish();
        }
        assert_eq!(String::from_utf8(text).unwrap(), "mayfly: teardown, 2 of 5, about 40 s\n");
    }

    #[test]
    fn more_passes_are_a_line_that_says_why() {
        let mut text = Vec::new();
        let goal = Goal { precision: Some(0.05), seconds: None };
        let widest = Widest { what: "destroy of kernel on kvm".into(), half_width: Some(0.081) };
        Lines(&mut text).again(4, Some(&widest), goal);
        Lines(&mut text).again(1, Some(&Widest { half_width: None, ..widest }), goal);
        Lines(&mut text).again(1, None, Goal { precision: None, seconds: Some(9.0) });
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "mayfly: 4 more passes: the interval of destroy of kernel on kvm is 8.1%, the goal is 5.0%\n\
             mayfly: 1 more pass: the interval of destroy of kernel on kvm is unknown, the goal is 5.0%\n\
             mayfly: 1 more pass\n"
        );
    }
}
