//! What each design does with the array of devices, or of memslots, that a change replaced.

use mayfly_iobus::{Refused, Replaced};
use mayfly_machine::{AnyDevice, MachineVm};
use mayfly_memslot::{Hva, Region};

/// What is done with the array that a registration replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposal {
    /// `synchronize_srcu_expedited()`
    Synchronize,
    /// `call_srcu()`
    Call,
    /// The former before the first vCPU, the latter from then on.
    KeyedOnVcpus,
    /// `call_srcu_expedited()`
    CallExpedited,
    /// What Mayfly does.
    Mayfly,
}

impl Disposal {
    /// Disposes of what a registration replaced, in a VM that has vCPUs by now, or has none.
    pub(super) fn dispose(
        self,
        replaced: Result<Replaced<AnyDevice>, Refused<AnyDevice>>,
        has_vcpus: bool,
    ) -> anyhow::Result<()> {
        let replaced = replaced.map_err(|refused| refused.error)?;
        let synchronize = match self {
            Self::Synchronize => true,
            Self::KeyedOnVcpus => !has_vcpus,
            Self::Call | Self::CallExpedited | Self::Mayfly => false,
        };
        if synchronize {
            drop(replaced.synchronize_expedited());
        } else if self == Self::CallExpedited {
            replaced.defer_expedited();
        } else {
            replaced.defer();
        }
        Ok(())
    }

    /// Sets a slot as each design does: KVM swaps the active memslots, and synchronises, at every change.
    pub(super) fn set_slot(
        self,
        vm: &MachineVm,
        region: &Region<Hva>,
        private: bool,
    ) -> anyhow::Result<()> {
        match (self, private) {
            (Self::Mayfly, false) => vm.set_memory_region(region)?,
            (Self::Mayfly, true) => vm.set_private_memory_region(region)?,
            (_, private) => {
                // SAFETY: no guest runs before the slots are set, and no memory of theirs is taken away.
                let slots = unsafe { vm.raw_slots() };
                let change =
                    if private { slots.apply_private(region) } else { slots.apply(region) };
                if let Some(change) = change? {
                    drop(change.retired.synchronize_expedited());
                }
            }
        }
        Ok(())
    }
}
