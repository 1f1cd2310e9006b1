//! What each step of a VM's start took.

use std::fmt;
use std::time::{Duration, Instant};

use super::Step;

/// What each step of a VM's start took, in the order in which they came.
#[derive(Clone, Debug)]
pub struct Timeline {
    created: Duration,
    steps: Vec<(Step, Duration)>,
    last: Instant,
}

impl Timeline {
    /// Begins with `KVM_CREATE_VM`, which was called at `begun` and has just returned.
    pub(super) fn begun(begun: Instant) -> Self {
        let last = Instant::now();
        Self { created: last - begun, steps: Vec::new(), last }
    }

    /// `step` has just been done.
    pub(super) fn took(&mut self, step: Step) {
        let now = Instant::now();
        self.steps.push((step, now - self.last));
        self.last = now;
    }

    /// `KVM_CREATE_VM`.
    pub fn created(&self) -> Duration {
        self.created
    }

    /// The steps.
    pub fn steps(&self) -> &[(Step, Duration)] {
        &self.steps
    }

    /// From the call of `KVM_CREATE_VM` until all is there.
    pub fn total(&self) -> Duration {
        self.created + self.after_creation()
    }

    /// From the return of `KVM_CREATE_VM` until all is there.
    pub fn after_creation(&self) -> Duration {
        self.steps.iter().map(|(_, took)| *took).sum()
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        write!(f, "KVM_CREATE_VM {:.0} us", micros(self.created))?;
        self.steps
            .iter()
            .try_for_each(|(step, took)| write!(f, ", {step} {:.0} us", micros(*took)))?;
        write!(f, "; {:.0} us in all", micros(self.total()))
    }
}
