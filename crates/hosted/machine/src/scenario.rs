//! What guests rely on when they turn their caches on and off: scenarios, each played on a machine whose
//! [`Oracle`](crate::cache::Oracle) does the worst that caches may.
//!
//! A guest in a scenario says what each of its reads has to find: the last value that was written there, by whom and in
//! whatever state of caches, where hypervisor and architecture together promise that. So a read that finds another has
//! found a hole in the [`Rule`] by which caches are maintained.

mod races;
mod stage;
mod suite;

use std::error::Error;
use std::fmt;

use mayfly_platform::cache::CacheCapabilities;
use mayfly_stage2::{Arm, ArmFwb, Format};
use mayfly_vm::{CacheOp, Caches, SlotZap};

use crate::address_space::Backing;
use crate::cache::LineCounts;
use crate::{MachineVm, Mismatch};
use stage::Stage;

/// The tables of the machine that scenarios are played on: Arm's, whose guests get past their caches.
pub type TableFormat = Arm<48>;

/// The same, of processors that force write-back.
pub type ForcedFormat = ArmFwb<48>;

/// What kept a scenario from being played.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Who maintains caches when a guest does something to its vCPU's.
pub trait Rule: Sync {
    /// [`Caches::Tracked`] where the core does, [`Caches::Reported`] where this does.
    fn caches(&self) -> Caches;

    /// vCPU `vcpu` has come out with `op`, and does it when this returns. Not called where the core looks after it, nor
    /// where write-back is forced, as nothing is trapped there.
    fn switched(&self, vm: &dyn Maintained, vcpu: u32, op: CacheOp);
}

/// A VM in any format, as far as a [`Rule`] has to do with it.
pub trait Maintained {
    /// [`Vm::clean_invalidate_mapped`](mayfly_vm::Vm::clean_invalidate_mapped).
    fn clean_invalidate_mapped(&self);
}

impl<F: Format> Maintained for MachineVm<F> {
    fn clean_invalidate_mapped(&self) {
        (**self).clean_invalidate_mapped();
    }
}

/// The core's own rule.
#[derive(Clone, Copy, Debug)]
pub struct Tracked;

impl Rule for Tracked {
    fn caches(&self) -> Caches {
        Caches::Tracked
    }

    fn switched(&self, _: &dyn Maintained, _: u32, _: CacheOp) {}
}

/// Something that guests rely on.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Lower case, words joined by dashes.
    pub name: &'static str,
    /// What the guest relies on, in one line.
    pub relies_on: &'static str,
    machine: Conditions,
    play: Play,
}

/// How it goes, and in which format.
#[derive(Clone, Copy)]
enum Play {
    /// In [`TableFormat`].
    Usual(fn(&Stage<'_>) -> Result<(), Failure>),
    /// In [`ForcedFormat`].
    Forced(fn(&Stage<'_, ForcedFormat>) -> Result<(), Failure>),
}

/// What it is played on.
#[derive(Clone, Copy)]
struct Conditions {
    capabilities: CacheCapabilities,
    slot_zap: SlotZap,
}

impl Scenario {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        suite::SCENARIOS.into_iter().chain(races::SCENARIOS)
    }

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

/// How a scenario went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Reads whose value the guest knew.
    pub reads: u64,
    /// Those that gave another; the first of each stay that a vCPU had.
    pub stale: Vec<Stale>,
    /// What was maintained.
    pub lines: LineCounts,
}

/// A read that did not give the last value written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The vCPU that read; none, where the host did.
    pub vcpu: Option<u32>,
    /// What.
    pub mismatch: Mismatch,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.vcpu {
            Some(vcpu) => write!(f, "vCPU {vcpu} read {}", self.mismatch),
            None => write!(f, "the host read {}", self.mismatch),
        }
    }
}
