//! Why a vCPU returns from the guest.

/// Why a vCPU came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// `KVM_EXIT_IO`, or on arm64 `KVM_EXIT_MMIO` in the window of ports: the payload finished a pass.
    PortWrite {
        /// The I/O port.
        port: u16,
        /// The pass, from 1.
        value: u32,
    },
    /// `KVM_EXIT_MMIO`: the guest wrote to its doorbell, and no ioeventfd took it.
    MmioWrite {
        /// The guest physical address.
        gpa: u64,
        /// The pass, from 1; of [`CacheSwitch`](crate::CacheSwitch), what that says.
        value: u32,
    },
    /// `KVM_EXIT_DIRTY_RING_FULL`: the vCPU's [ring](crate::DirtyRing) has no room, until it is collected and reset.
    DirtyRingFull,
}
