//! The device behind an I/O address.

use alloc::boxed::Box;
use alloc::sync::Arc;

/// A device on an I/O bus. Several vCPUs call it at once, under the VM's SRCU. It may block, and its removal waits
/// until it returns.
///
/// While it is called it must not make a call on its own VM that waits for vCPUs that handle an exit, because its
/// caller is one: unregister, or delete, move or change a slot. It may:
///
/// - move itself or other devices at any time ([`Vm::relocate`](crate::Vm::relocate)), as a guest asks for that moves a
///   BAR;
/// - make other calls that do not wait (see the [crate's page](crate)), as long as the [bound](mayfly_srcu::Limits) of
///   what is deferred is not reached;
/// - create slots, as long as no caller takes a lot of memory away for good, as the host or with a slot: such a caller
///   may be waiting for this vCPU.
///
/// Where it cannot know that, it leaves the work to another thread.
pub trait Device: Send + Sync {
    /// The guest reads `data.len()` bytes (1 to 8) at `offset` into the device's range, on the vCPU of that number.
    fn read(&self, vcpu: u32, offset: u64, data: &mut [u8]);

    /// The guest writes `data` (1 to 8 bytes, little-endian) at `offset` into the device's range, on the vCPU of that
    /// number.
    fn write(&self, vcpu: u32, offset: u64, data: &[u8]);
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn read(&self, vcpu: u32, offset: u64, data: &mut [u8]) {
        (**self).read(vcpu, offset, data);
    }

    fn write(&self, vcpu: u32, offset: u64, data: &[u8]) {
        (**self).write(vcpu, offset, data);
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn read(&self, vcpu: u32, offset: u64, data: &mut [u8]) {
        (**self).read(vcpu, offset, data);
    }

    fn write(&self, vcpu: u32, offset: u64, data: &[u8]) {
        (**self).write(vcpu, offset, data);
    }
}
