//! An irqfd: an eventfd whose signal is an interrupt of the guest.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use kvm_bindings::{KVM_IRQFD_FLAG_DEASSIGN, KVMIO, kvm_irqfd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::ioctl::{Setter, opcode};

use crate::Error;

/// An interrupt line, and the eventfd that raises it.
#[derive(Debug)]
pub struct IrqFd {
    gsi: u32,
    signal: OwnedFd,
}

impl IrqFd {
    /// Creates the eventfd; no VM knows of it yet. `gsi` is the line's number in the VM's interrupt routing.
    ///
    /// # Errors
    /// [`Error::Call`] with `eventfd2`: EMFILE, ENFILE, ENOMEM.
    pub fn new(gsi: u32) -> Result<Self, Error> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::call("eventfd2"))?;
        Ok(Self { gsi, signal })
    }

    /// Raises the interrupt once.
    ///
    /// # Errors
    /// [`Error::Call`] with `write`: EAGAIN while the most signals that an eventfd counts are pending.
    pub fn signal(&self) -> Result<(), Error> {
        rustix::io::write(&self.signal, &1u64.to_ne_bytes()).map(drop).map_err(Error::call("write"))
    }

    /// `KVM_IRQFD` on the VM `vm`: assigns, or takes back.
    pub(crate) fn apply(&self, vm: BorrowedFd<'_>, assign: bool) -> Result<(), Error> {
        const KVM_IRQFD: rustix::ioctl::Opcode = opcode::write::<kvm_irqfd>(KVMIO as u8, 0x76);
        let request = kvm_irqfd {
            fd: self.signal.as_raw_fd().cast_unsigned(),
            gsi: self.gsi,
            flags: if assign { 0 } else { KVM_IRQFD_FLAG_DEASSIGN },
            ..Default::default()
        };
        // SAFETY: KVM_IRQFD reads one `kvm_irqfd` through its argument and writes no memory of this process (uapi
        // linux/kvm.h: _IOW(KVMIO, 0x76, struct kvm_irqfd)), which is the contract of a `Setter` of that type. The
        // kernel takes its own reference on the eventfd. Any values in it are safe: KVM checks them.
        unsafe { rustix::ioctl::ioctl(vm, Setter::<KVM_IRQFD, _>::new(request)) }
            .map_err(Error::call("KVM_IRQFD"))
    }
}
