//! The designs that are compared: which vCPU's switch makes the host flush memory.

use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_machine::scenario::{Maintained, Rule};
use mayfly_vm::{CacheOp, Caches};

use crate::experiment::Variant;

/// What is flushed when a vCPU turns its caches on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Design {
    /// All that is mapped.
    EveryVcpu,
    /// The same, for vCPU 0.
    Vcpu0Only,
    /// The same, for the first that turns them on.
    FirstVcpu,
    /// What was written, as the core does.
    Mayfly,
}

impl Design {
    const ALL: [Self; 4] = [Self::EveryVcpu, Self::Vcpu0Only, Self::FirstVcpu, Self::Mayfly];

    /// The design of a variant.
    pub(super) fn of(variant: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|design| design.name() == variant)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::EveryVcpu => "every-vcpu",
            Self::Vcpu0Only => "vcpu0-only",
            Self::FirstVcpu => "first-vcpu",
            Self::Mayfly => Variant::BASELINE,
        }
    }

    /// The scenarios in which guests read stale data with it, although it was proposed; sorted.
    pub(super) const fn known_stale(self) -> &'static [&'static str] {
        match self {
            Self::EveryVcpu | Self::Mayfly => &[],
            Self::Vcpu0Only => &[
                "anothers-writes",
                "hotplug",
                "off-again",
                "off-beside-fault",
                "others-still-off",
                "own-writes",
                "page-mapped-between",
                "page-shared-and-broken",
                "two-at-once",
                "vcpu-0-comes-later",
                "write-beside-flush",
            ],
            Self::FirstVcpu => &[
                "anothers-off",
                "anothers-writes",
                "hotplug",
                "off-again",
                "off-beside-fault",
                "others-still-off",
                "own-writes",
                "page-mapped-between",
                "page-shared-and-broken",
                "set-way",
                "two-at-once",
                "vcpu-0-comes-later",
                "write-beside-flush",
            ],
        }
    }

    /// The design as the rule of one VM.
    pub(super) fn rule(self) -> OfOneVm {
        OfOneVm { design: self, has_flushed: AtomicBool::new(false) }
    }
}

/// A design, and what it has done in its VM.
pub(super) struct OfOneVm {
    design: Design,
    /// The first vCPU has turned its caches on.
    has_flushed: AtomicBool,
}

impl Rule for OfOneVm {
    fn caches(&self) -> Caches {
        if self.design == Design::Mayfly { Caches::Tracked } else { Caches::Reported }
    }

    /// Operations by set and way, of which the proposals say nothing, flush everything in all of them.
    fn switched(&self, vm: &dyn Maintained, vcpu: u32, op: CacheOp) {
        let flushes = match (self.design, op) {
            (Design::Mayfly, _) | (Design::FirstVcpu, CacheOp::Off) => false,
            (Design::EveryVcpu, _) | (_, CacheOp::SetWay) => true,
            (Design::Vcpu0Only, _) => vcpu == 0,
            (Design::FirstVcpu, CacheOp::On) => !self.has_flushed.swap(true, Ordering::AcqRel),
        };
        if flushes {
            vm.clean_invalidate_mapped();
        }
    }
}
