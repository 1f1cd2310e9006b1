//! The steps of a script: calls on a VM, with what they need of their arguments.

use crate::record::Object;

/// A life to be played, and what of the recorded one is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    /// Nanoseconds between the last step and the close.
    pub(crate) before_close: u64,
    /// A clause each.
    pub(crate) left_out: Vec<String>,
    /// What stands for something that was not recorded, a clause each.
    pub(crate) stands_in: Vec<String>,
}

/// A call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) act: Act,
    /// Nanoseconds that pass before it: what the program did meanwhile.
    pub(crate) pause: u64,
    pub(crate) part: Part,
    /// Which of the trace's calls it was.
    pub(crate) call: usize,
}

/// Where in the life a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Up to the first entry of a vCPU.
    Start,
    /// While vCPUs ran.
    Meanwhile,
    /// Since the last exit.
    Close,
}

/// A call on the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    CreateVm,
    /// A slot is made, moved or changed.
    Slot {
        slot: u32,
        guest: u64,
        size: u64,
        flags: u32,
    },
    DeleteSlot {
        slot: u32,
    },
    TssAddress(u64),
    IdentityMap,
    Irqchip,
    SplitIrqchip,
    Pit,
    /// A table of so many routes.
    Routing(u64),
    Coalesced {
        address: u64,
        size: u32,
        is_there: bool,
    },
    IoEvent(IoEvent, Change),
    IrqFd {
        eventfd: u64,
        gsi: u32,
        change: Change,
    },
    Vcpu(u32),
    /// Several at a time, each on a thread; the remedy of one after the other.
    Vcpus(Vec<u32>),
    /// The first run, of a guest of a few instructions.
    Run(u32),
}

/// Whether a device comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Comes,
    Goes,
}

/// What an ioeventfd is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IoEvent {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) value: Option<u64>,
    pub(crate) is_port: bool,
    pub(crate) eventfd: u64,
}

impl Act {
    /// The call's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::CreateVm => "KVM_CREATE_VM",
            Self::Slot { .. } | Self::DeleteSlot { .. } => "KVM_SET_USER_MEMORY_REGION",
            Self::TssAddress(_) => "KVM_SET_TSS_ADDR",
            Self::IdentityMap => "KVM_SET_IDENTITY_MAP_ADDR",
            Self::Irqchip => "KVM_CREATE_IRQCHIP",
            Self::SplitIrqchip => "KVM_ENABLE_CAP",
            Self::Pit => "KVM_CREATE_PIT2",
            Self::Routing(_) => "KVM_SET_GSI_ROUTING",
            Self::Coalesced { is_there: true, .. } => "KVM_REGISTER_COALESCED_MMIO",
            Self::Coalesced { is_there: false, .. } => "KVM_UNREGISTER_COALESCED_MMIO",
            Self::IoEvent(..) => "KVM_IOEVENTFD",
            Self::IrqFd { .. } => "KVM_IRQFD",
            Self::Vcpu(_) | Self::Vcpus(_) => "KVM_CREATE_VCPU",
            Self::Run(_) => "KVM_RUN",
        }
    }

    /// Whether it changes memslots: Linux's own, of the TSS and the identity map, among them.
    pub(crate) fn is_memory(&self) -> bool {
        use Act::{DeleteSlot, IdentityMap, Slot, TssAddress};
        matches!(self, Slot { .. } | DeleteSlot { .. } | TssAddress(_) | IdentityMap)
    }
}

/// Whose VM a call is on.
pub(crate) fn vm_of(on: Option<&Object>) -> Option<usize> {
    match on? {
        Object::Vm { vm } | Object::Vcpu { vm, .. } | Object::Device { vm } => Some(*vm),
        Object::Kvm => None,
    }
}
