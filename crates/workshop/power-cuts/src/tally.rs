//! What has become of all lives.

use std::fmt;

use mayfly_power_cuts::Loss;

use crate::console::Console;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) cuts: u64,
    /// Up to which number a guest has said to have flushed.
    pub(crate) said: u64,
    pub(crate) loss: Loss,
    /// Cuts that came before a life that has checked its disk.
    pub(crate) checked: u64,
}

impl Tally {
    /// A life has ended by a cut.
    pub(crate) fn add(&mut self, console: &Console, loss: Loss) {
        if console.has_found() {
            self.checked = self.cuts;
        }
        self.cuts += 1;
        self.said = self.said.max(console.said().unwrap_or(0));
        self.loss.volatile += loss.volatile;
        self.loss.lost += loss.lost;
        self.loss.torn += loss.torn;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cuts, said, loss, checked } = self;
        write!(
            f,
            "{cuts} cuts, {checked} of them checked; flushed up to {said}; of {} volatile sectors {} were lost, and {} requests were torn",
            loss.volatile, loss.lost, loss.torn
        )
    }
}
