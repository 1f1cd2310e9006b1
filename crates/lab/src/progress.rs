//! Progress of a long run.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Whom a running experiment tells how far it is.
///
/// Calls may draw on the caller's thread, so they belong between measurements. There is no thread that
/// redraws on its own: it would take time from what is being measured.
pub trait Progress {
    /// A part of the run begins: what it is, and of how many steps.
    fn begin(&mut self, what: &str, steps: u64);

    /// One more step is done.
    fn step(&mut self);

    /// The part is over.
    fn finish(&mut self);
}

/// Tells nobody.
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _what: &str, _steps: u64) {}
    fn step(&mut self) {}
    fn finish(&mut self) {}
}

/// A bar on standard error, if that is a terminal that can redraw a line.
///
/// Clones share the one bar, so that a signal handler can wipe what a run has drawn.
#[derive(Clone)]
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar that draws nothing before the first [`begin`](Progress::begin).
    ///
    /// # Panics
    ///
    /// Never: the template is valid.
    pub fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let target = if stderr().is_terminal() && !dumb {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{msg}  {bar:30}  {pos}/{len}  {eta} left")
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
