//! One line an experiment, where nothing can be drawn.

use std::io::Write;
use std::time::Duration;

use mayfly_record::units;

use crate::progress::Progress;

/// Writes a line as each experiment begins: to a log, which is read when something takes long.
pub struct Lines<W>(pub W);

impl<W: Write> Progress for Lines<W> {
    fn experiment(&mut self, name: &str, which: usize, of: usize, time: Duration) {
        let time = units::about(time);
        // Who does not read it misses nothing but this.
        let _ = writeln!(self.0, "mayfly: {name}, {which} of {of}, {time}");
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
}
