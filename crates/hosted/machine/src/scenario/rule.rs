//! Rules: which part maintains caches when a guest switches its own; and the formats that scenarios are played in.

use mayfly_stage2::{Arm, ArmFwb, Format};
use mayfly_vm::{CacheOp, Caches};

use crate::MachineVm;

/// The tables of the machine that scenarios are played on: Arm's, whose guests get past their caches.
pub type TableFormat = Arm<48>;

/// The same, of processors that force write-back.
pub type ForcedFormat = ArmFwb<48>;

/// Which part maintains caches when a guest switches its vCPU's.
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
