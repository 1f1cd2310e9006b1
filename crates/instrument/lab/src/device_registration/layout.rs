//! What lies where in the guest, the same on every backend.

/// Where every vCPU writes: its first MMIO exit, and an ioeventfd later.
pub(super) const DOORBELL: u64 = 0xd000_0000;

/// The page that VMX and AVIC back with an internal slot.
pub(super) const APIC_ACCESS_PAGE: u64 = 0xfee0_0000;

/// Memory, guest address and bytes: the first slot, and those that are added.
pub(super) const MEMORY: [(u64, usize); 4] =
    [(0, 2 << 20), (0x1000_0000, 1 << 20), (0x2000_0000, 1 << 20), (0x3000_0000, 1 << 20)];

/// ioeventfds beside the VM's own, which are registered while its vCPUs run.
pub(super) const EXTRA: u32 = 2;

/// Where the ioeventfd of this index is: a page each, as those of virtio devices.
pub(super) fn eventfd_address(index: u32) -> u64 {
    0xe000_0000 + u64::from(index) * 0x1000
}
