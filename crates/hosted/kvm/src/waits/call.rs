//! The calls on a VM that may arm a grace period, or wait for one.

use std::fmt;
use std::str::FromStr;

/// A call on a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// `KVM_CREATE_IRQCHIP`; on arm64 `KVM_CREATE_DEVICE` of a vGIC.
    IrqchipFull,
    /// `KVM_ENABLE_CAP` of `KVM_CAP_SPLIT_IRQCHIP`.
    IrqchipSplit,
    /// `KVM_CREATE_PIT2`.
    Pit,
    /// `KVM_IOEVENTFD`.
    IoeventfdAdd,
    /// `KVM_IOEVENTFD` with `KVM_IOEVENTFD_FLAG_DEASSIGN`.
    IoeventfdRemove,
    /// `KVM_IRQFD`.
    IrqfdAdd,
    /// `KVM_IRQFD` with `KVM_IRQFD_FLAG_DEASSIGN`.
    IrqfdRemove,
    /// `KVM_CREATE_VCPU`.
    Vcpu,
    /// `KVM_SET_USER_MEMORY_REGION` of a new slot.
    MemslotAdd,
    /// `KVM_SET_USER_MEMORY_REGION` with another guest physical address.
    MemslotMove,
    /// `KVM_SET_USER_MEMORY_REGION` with a size of 0.
    MemslotDelete,
    /// `close` of the last fd of the VM.
    Close,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::IrqchipFull,
        Self::IrqchipSplit,
        Self::Pit,
        Self::IoeventfdAdd,
        Self::IoeventfdRemove,
        Self::IrqfdAdd,
        Self::IrqfdRemove,
        Self::Vcpu,
        Self::MemslotAdd,
        Self::MemslotMove,
        Self::MemslotDelete,
        Self::Close,
    ];

    /// A name that stays: it stands in reports, metrics and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::IrqchipFull => "irqchip-full",
            Self::IrqchipSplit => "irqchip-split",
            Self::Pit => "pit",
            Self::IoeventfdAdd => "ioeventfd-add",
            Self::IoeventfdRemove => "ioeventfd-remove",
            Self::IrqfdAdd => "irqfd-add",
            Self::IrqfdRemove => "irqfd-remove",
            Self::Vcpu => "vcpu",
            Self::MemslotAdd => "memslot-add",
            Self::MemslotMove => "memslot-move",
            Self::MemslotDelete => "memslot-delete",
            Self::Close => "close",
        }
    }

    /// Whether this host's architecture knows the call.
    pub fn is_here(self) -> bool {
        cfg!(target_arch = "x86_64") || !matches!(self, Self::IrqchipSplit | Self::Pit)
    }

    /// Whether `then` may come after this one in a VM's life, as the next call.
    pub fn may_precede(self, then: Self) -> bool {
        let chip = |call| matches!(call, Self::IrqchipFull | Self::IrqchipSplit);
        match (self, then) {
            (Self::Close, _) | (Self::Pit | Self::IrqchipSplit, Self::Pit) => false,
            (one, two) if chip(one) && chip(two) => false,
            // An irqfd that is taken away has been registered before, and that needs an interrupt controller.
            (one, Self::IrqfdRemove) if chip(one) => false,
            // These need an interrupt controller before them, and a VM has one.
            (one, two) if one.needs_irqchip() && chip(two) => false,
            _ => self.is_here() && then.is_here(),
        }
    }

    /// Whether it needs an interrupt controller to be there. A vCPU does not; but KVM adds a memslot with it only where
    /// one is there.
    pub(super) fn needs_irqchip(self) -> bool {
        matches!(self, Self::Pit | Self::IrqfdAdd | Self::IrqfdRemove | Self::Vcpu)
    }

    /// Whether it makes an interrupt controller.
    pub(super) fn is_irqchip(self) -> bool {
        matches!(self, Self::IrqchipFull | Self::IrqchipSplit)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Call {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|call| call.name() == text).ok_or(())
    }
}
