//! The device behind an I/O address.

use alloc::boxed::Box;
use alloc::sync::Arc;

/// A device on an I/O bus. Called by any vCPU, by several at once, under the VM's SRCU: it may block, and its removal
/// waits until it returns.
///
/// So while it is called it must not do to its own VM what waits for vCPUs that handle an exit, of which its caller is
/// one: unregister, or delete, move or change a slot. It may at any time move itself or others
/// ([`Vm::relocate`](crate::Vm::relocate)), as a guest asks for that moves a BAR. What else waits for nobody (see the
/// [crate's page](crate)) it may do as long as the [bound](mayfly_srcu::Limits) of what is deferred is not reached; and
/// create slots, as long as nobody takes a lot of memory away for good, as the host or with a slot, which may be
/// waiting for this vCPU. Where that cannot be said, it leaves the work to another thread.
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
