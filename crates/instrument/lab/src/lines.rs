//! One line an experiment, where nothing can be drawn.

use std::io::Write;
use std::time::Duration;

use mayfly_record::{Goal, Widest, units};

use crate::progress::Progress;

/// Writes a line as each experiment begins: to a log, which is read when something takes long.
pub struct Lines<W>(pub W);

impl<W: Write> Progress for Lines<W> {
    fn experiment(&mut self, name: &str, which: usize, of: usize, time: Duration) {
        let time = units::about(time);
        // Who does not read it misses nothing but this.
        let _ = writeln!(self.0, "mayfly: {name}, {which} of {of}, {time}");
    }

    fn again(&mut self, times: u32, widest: Option<&Widest>, goal: Goal) {
        let wanted = goal.precision.map(|share| format!(", {} wanted", units::percent(share)));
        let known = widest.map(|widest| {
            let known = widest.half_width.map_or_else(|| "not yet".to_owned(), units::percent);
            format!(": {} is known to {known}", widest.what)
        });
        let (known, wanted) = (known.unwrap_or_default(), wanted.unwrap_or_default());
        let _ = writeln!(self.0, "mayfly: {times} more{known}{wanted}");
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
            "mayfly: 4 more: destroy of kernel on kvm is known to 8.1%, 5.0% wanted\n\
             mayfly: 1 more: destroy of kernel on kvm is known to not yet, 5.0% wanted\nmayfly: 1 more\n"
        );
    }
}
