//! A bar that is drawn, and gone afterwards.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use mayfly_record::{Goal, Widest};

use crate::progress::Progress;

/// At most 60 columns: what runs is cut off where it is longer.
const TEMPLATE: &str = "{prefix} {msg:34!} {bar:6} {percent:>3}% {eta:>4}";

/// A bar on standard error, if that is a terminal that can redraw a line.
///
/// Clones share the one bar, so that a signal handler can wipe what a run has drawn.
#[derive(Clone)]
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// Whether standard error is a terminal that can redraw a line.
    pub fn can_draw() -> bool {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        stderr().is_terminal() && !dumb
    }

    /// A bar that draws nothing before the first [`begin`](Progress::begin).
    ///
    /// # Panics
    ///
    /// Never: the template is valid.
    pub fn new() -> Self {
        let target = if Self::can_draw() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template(TEMPLATE)
            .expect("the template is valid")
            .progress_chars("=> ");
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style);
        Self { bar }
    }

    /// Wipes the bar from the terminal, for good.
    pub fn wipe(&self) {
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for Bar {
    fn experiment(&mut self, _name: &str, which: usize, of: usize, _time: Duration) {
        self.bar.set_prefix(format!("{which}/{of}"));
    }

    fn again(&mut self, times: u32, _widest: Option<&Widest>, _goal: Goal) {
        let which = self.bar.prefix();
        let which = which.split(' ').next().unwrap_or_default();
        self.bar.set_prefix(format!("{which} +{times}"));
    }

    fn begin(&mut self, what: &str, steps: u64) {
        self.bar.reset();
        self.bar.set_length(steps);
        self.bar.set_message(what.to_owned());
    }

    fn step(&mut self) {
        self.bar.inc(1);
    }

    fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}
