//! What a VM and its vCPUs have in common, and keep alive.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;

use crate::processor::Processor;
use crate::{Error, GuestMemory};

pub(crate) const SET_REGION: &str = "KVM_SET_USER_MEMORY_REGION";

/// What a VM's vCPUs keep alive. Fields are dropped in order: the fd goes before the memory that
/// the guest can reach.
pub(crate) struct Shared {
    /// Before the VM's: its fd is one more by which the VM lives.
    #[cfg(target_arch = "aarch64")]
    pub(crate) vgic: std::sync::OnceLock<crate::vgic::Vgic>,
    pub(crate) fd: VmFd,
    pub(crate) processor: Processor,
    /// Each slot in use, with what backs it.
    pub(crate) slots: Mutex<BTreeMap<u32, GuestMemory>>,
    /// What is behind the slots that were lent.
    pub(crate) lent: Mutex<Vec<Lent>>,
}

/// Memory that a guest has, and that another party than this crate has mapped.
pub(crate) type Lent = Box<dyn Any + Send + Sync>;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn fd(&self) -> &VmFd {
        &self.fd
    }

    pub(crate) fn processor(&self) -> &Processor {
        &self.processor
    }

    pub(crate) fn slots(&self) -> MutexGuard<'_, BTreeMap<u32, GuestMemory>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn borrow_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `VmFd` owns the fd and closes it only when it is dropped, and the result borrows
        // `self`.
        unsafe { BorrowedFd::borrow_raw(self.fd.as_raw_fd()) }
    }

    pub(crate) fn set_region(&self, region: kvm_userspace_memory_region) -> Result<(), Error> {
        // SAFETY: the guest may from now on read and write the memory that the region names. It
        // names none, or all of a `GuestMemory` of which the caller puts a clone into `slots`, and
        // which is taken out only when KVM has forgotten the slot or the VM has no fd left. Nothing
        // in this process holds a Rust reference into that memory: `GuestMemory` gives volatile
        // accesses only.
        unsafe { self.fd.set_user_memory_region(region) }.map_err(Error::ioctl(SET_REGION))
    }
}
