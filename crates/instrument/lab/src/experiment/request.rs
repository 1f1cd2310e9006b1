//! One run of an experiment: which variants, with which parameters, on which host.

use mayfly_record::{Backend, Host};

use super::Variant;
use crate::params::Params;
use crate::undo::Undo;

/// What an experiment is asked to run.
pub struct Request<'a> {
    /// The variants, of both backends; never none.
    pub variants: &'a [&'static Variant],
    /// What the user set.
    pub params: &'a Params,
    /// Where it runs.
    pub host: &'a Host,
    /// Where it keeps what it changes on the host.
    pub undo: &'a Undo,
    /// How often it has been gone through before in this run: chance should not repeat.
    pub pass: u32,
}

impl Request<'_> {
    /// The names of the variants to run on `backend`.
    pub fn variants_on(&self, backend: Backend) -> impl Iterator<Item = &'static str> {
        self.variants.iter().filter(move |v| v.backend == backend).map(|v| v.name)
    }

    /// How many of the variants run on `backend`.
    pub fn count_on(&self, backend: Backend) -> u32 {
        self.variants_on(backend).map(|_| 1).sum()
    }

    /// Ticks a second of the kernel that the software machine stands for: as set, or else as the
    /// host has; 250, which most distributions build, where the host does not tell.
    pub fn hz(&self) -> u32 {
        self.params.hz.or(self.host.hz).unwrap_or(250)
    }
}
