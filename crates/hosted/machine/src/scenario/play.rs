//! A scenario: what guests rely on, and how that is played.

use std::fmt;

use super::played::{Failure, Played};
use super::rule::{ForcedFormat, Rule};
use super::stage::{Conditions, Stage};
use crate::address_space::Backing;

/// Something that guests rely on.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Lower case, words joined by dashes.
    pub name: &'static str,
    /// What the guest relies on, in one line.
    pub relies_on: &'static str,
    pub(super) machine: Conditions,
    pub(super) play: Play,
}

/// How it goes, and in which format.
#[derive(Clone, Copy)]
pub(super) enum Play {
    /// In [`TableFormat`](super::TableFormat).
    Usual(fn(&Stage<'_>) -> Result<(), Failure>),
    /// In [`ForcedFormat`].
    Forced(fn(&Stage<'_, ForcedFormat>) -> Result<(), Failure>),
}

impl Scenario {
    /// Plays it under `rule`, with memory that the host has in pages of that kind.
    ///
    /// # Errors
    ///
    /// Where the machine, the VM, or a vCPU does something else than it should.
    pub fn play(&self, rule: &dyn Rule, backing: Backing) -> Result<Played, Failure> {
        match self.play {
            Play::Usual(play) => Stage::play(play, rule, self.machine, backing),
            Play::Forced(play) => Stage::play(play, rule, self.machine, backing),
        }
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).finish_non_exhaustive()
    }
}
