//! The state of a VM's cache maintenance, and of each vCPU's caches ([`caches`](super)).

use alloc::sync::Arc;

use mayfly_platform::Platform;
use mayfly_platform::cache::{Cache, CacheCapabilities, InstructionCaches};
use mayfly_platform::sync::AtomicBool;
use mayfly_srcu::Srcu;
use mayfly_stage2::Role;

use crate::Error;

/// How caches are maintained, so that a VM's guests find in memory what is in the caches, and in the caches what is in
/// memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Caches {
    /// Nothing has to be done: no access of a guest goes past the caches, as on x86, and instruction caches see what is
    /// written ([`InstructionCaches::Coherent`]). A VM is refused otherwise: what its guest executes in a page would be
    /// what was fetched from the frame when it was another's. Forced write-back does not help there: it is about data
    /// (DDI 0487, `CTR_EL0.DIC`: unless it is set, instruction caches are to be invalidated to the point of
    /// unification, whatever stage 2 says of the memory; Linux does so at the fault that makes a page executable).
    #[default]
    Coherent,
    /// The VM, when it maps memory, which it cleans; for the rest its user, which is told by
    /// [`Exit::Caches`](crate::Exit::Caches) what a guest does, and has
    /// [`Vm::clean_invalidate_mapped`](crate::Vm::clean_invalidate_mapped).
    Reported,
    /// The VM, which knows what guests have written past the caches, and maintains that when it has to.
    Tracked,
}

/// Which of a guest's cache operations bring it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheTraps {
    /// None.
    #[default]
    None,
    /// [`CacheOp::SetWay`](crate::CacheOp::SetWay) (Arm: `HCR_EL2.TSW`).
    SetWay,
    /// All; turning caches on and off by a trap of that register alone (`HFGWTR_EL2.SCTLR_EL1`, with `FEAT_FGT`).
    Control,
    /// All; by a trap of every register of stage 1, for want of anything finer (`HCR_EL2.TVM`).
    Registers,
}

impl CacheTraps {
    /// Whether turning the caches on or off brings the guest out.
    pub fn toggles(self) -> bool {
        matches!(self, Self::Control | Self::Registers)
    }

    /// Whether an operation by set and way does.
    pub fn set_way(self) -> bool {
        self != Self::None
    }
}

/// Whether a guest has its caches on, as it was at some time ([`Vcpu::guest_caches`](crate::Vcpu::guest_caches)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GuestCaches {
    on: bool,
    watched: bool,
}

/// The caches of one vCPU.
#[derive(Debug)]
pub(crate) struct VcpuCaches {
    pub(super) on: bool,
    /// Has operated by set and way since it turned them on: it may be about to turn them off.
    pub(super) watched: bool,
    /// What follows from the above.
    traps: CacheTraps,
    role: Role,
}

impl VcpuCaches {
    #[inline]
    pub(crate) fn traps(&self) -> CacheTraps {
        self.traps
    }

    pub(crate) fn state(&self) -> GuestCaches {
        GuestCaches { on: self.on, watched: self.watched }
    }

    /// The root that the vCPU runs on.
    pub(crate) fn role(&self) -> Role {
        self.role
    }
}

/// What a VM does about caches.
pub(crate) struct Upkeep {
    /// It does anything at all when it maps memory.
    pub(super) maps: bool,
    pub(super) mode: Caches,
    /// [`Format::COHERENT`](mayfly_stage2::Format::COHERENT).
    pub(super) coherent: bool,
    pub(super) capabilities: CacheCapabilities,
    /// Where marks are kept.
    pub(super) tracking: Option<Tracking>,
}

pub(super) struct Tracking {
    /// Flushes are its sections.
    pub(super) flushes: Srcu,
    /// Something has been mapped past the caches since that was last zapped.
    pub(super) mapped: AtomicBool,
    /// Some vCPU has turned its caches off, or cleaned them by set and way: what is mapped on the main root may have
    /// lines of its.
    pub(super) left_behind: AtomicBool,
}

impl Upkeep {
    pub(crate) fn try_new(
        mode: Caches,
        coherent: bool,
        cache: &dyn Cache,
        platform: &Arc<dyn Platform>,
    ) -> Result<Self, Error> {
        let capabilities = cache.capabilities();
        let fetches_anew = capabilities.instructions == InstructionCaches::Coherent;
        if mode == Caches::Coherent && !fetches_anew {
            return Err(Error::InstructionCaches);
        }
        let maps = mode != Caches::Coherent && !(coherent && fetches_anew);
        let tracking = if mode == Caches::Tracked && !coherent {
            let flushes = Srcu::try_new(Arc::clone(platform), mayfly_srcu::Config::default())?;
            let (mapped, left_behind) = (AtomicBool::new(false), AtomicBool::new(false));
            Some(Tracking { flushes, mapped, left_behind })
        } else {
            None
        };
        Ok(Self { maps, mode, coherent, capabilities, tracking })
    }

    /// The caches of a new vCPU: off, where that makes a difference.
    pub(crate) fn vcpu(&self) -> VcpuCaches {
        let mut caches =
            VcpuCaches { on: false, watched: false, traps: CacheTraps::None, role: Role::MAIN };
        self.settle(&mut caches);
        caches
    }

    /// A vCPU that has not run has its guest's caches as `state` says.
    pub(crate) fn begin(&self, caches: &mut VcpuCaches, state: GuestCaches) {
        (caches.on, caches.watched) = (state.on, state.watched);
        self.settle(caches);
    }

    /// The role of the root that a vCPU will run on, if not on its first one all the time.
    pub(crate) fn later_role(&self) -> Option<Role> {
        self.tracking.as_ref().map(|_| Role::MAIN)
    }

    pub(super) fn settle(&self, caches: &mut VcpuCaches) {
        let past_caches = self.tracking.is_some() && !caches.on;
        caches.role = if past_caches { Role::MARKED } else { Role::MAIN };
        caches.traps = if self.mode == Caches::Coherent || self.coherent {
            CacheTraps::None
        } else if self.capabilities.fgt {
            CacheTraps::Control
        } else if caches.on && !caches.watched {
            CacheTraps::SetWay
        } else {
            CacheTraps::Registers
        };
    }
}
