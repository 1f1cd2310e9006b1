//! An ioeventfd: an address at which a guest's write signals an eventfd instead of leaving the
//! guest's run.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use kvm_bindings::{
    KVMIO, kvm_ioeventfd, kvm_ioeventfd_flag_nr_datamatch as DATAMATCH,
    kvm_ioeventfd_flag_nr_deassign as DEASSIGN, kvm_ioeventfd_flag_nr_pio as PORT,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::ioctl::{Setter, opcode};

use crate::Error;

/// An MMIO address or a port to watch, and the eventfd that a write there signals.
#[derive(Debug)]
pub struct IoEvent {
    address: u64,
    is_port: bool,
    len: u32,
    datamatch: Option<u64>,
    signal: OwnedFd,
}

impl IoEvent {
    /// Creates the eventfd; no VM knows of it yet.
    ///
    /// `len` is the width of the writes that match, in bytes: 1, 2, 4 or 8; or 0 for any width,
    /// which KVM registers on two buses (MMIO and fast MMIO) and which therefore costs two
    /// registrations. With `datamatch`, only writes of that value match. KVM checks them, when the
    /// event is registered.
    ///
    /// # Errors
    /// [`Error::Call`] with `eventfd2`: EMFILE, ENFILE, ENOMEM.
    pub fn new(gpa: u64, len: u32, datamatch: Option<u64>) -> Result<Self, Error> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::call("eventfd2"))?;
        Ok(Self { address: gpa, is_port: false, len, datamatch, signal })
    }

    /// The same of an I/O port (x86).
    ///
    /// # Errors
    /// As [`IoEvent::new`].
    pub fn at_port(port: u64, len: u32, datamatch: Option<u64>) -> Result<Self, Error> {
        Ok(Self { is_port: true, ..Self::new(port, len, datamatch)? })
    }

    /// How often the eventfd was signalled since the last call; does not wait.
    ///
    /// # Errors
    /// [`Error::Call`] with `read`.
    pub fn take(&self) -> Result<u64, Error> {
        let mut count = [0; 8];
        match rustix::io::read(&self.signal, &mut count) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(Errno::AGAIN) => Ok(0),
            Err(errno) => Err(Error::call("read")(errno)),
        }
    }

    /// `KVM_IOEVENTFD` on the VM `vm`: assigns, or takes back.
    ///
    /// Not through kvm-ioctls, which derives the width from the type of the datamatch: without one,
    /// it knows width 0 alone.
    pub(crate) fn apply(&self, vm: BorrowedFd<'_>, assign: bool) -> Result<(), Error> {
        const KVM_IOEVENTFD: rustix::ioctl::Opcode =
            opcode::write::<kvm_ioeventfd>(KVMIO as u8, 0x79);
        let mut flags = 0;
        if self.datamatch.is_some() {
            flags |= 1 << DATAMATCH;
        }
        if self.is_port {
            flags |= 1 << PORT;
        }
        if !assign {
            flags |= 1 << DEASSIGN;
        }
        let request = kvm_ioeventfd {
            datamatch: self.datamatch.unwrap_or_default(),
            addr: self.address,
            len: self.len,
            fd: self.signal.as_raw_fd(),
            flags,
            ..Default::default()
        };
        // SAFETY: KVM_IOEVENTFD reads one `kvm_ioeventfd` through its argument and writes no memory
        // of this process (uapi linux/kvm.h: _IOW(KVMIO, 0x79, struct kvm_ioeventfd)), which is the
        // contract of a `Setter` of that type. The kernel takes its own reference on the eventfd.
        // Any values in it are safe: KVM checks them.
        unsafe { rustix::ioctl::ioctl(vm, Setter::<KVM_IOEVENTFD, _>::new(request)) }
            .map_err(Error::call("KVM_IOEVENTFD"))
    }
}
