//! The account of a VM's processor time, or of the hypervisor's own: a share of the machine, by which the scheduler
//! decides whose thread runs.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::cell::UnsafeCell;

use mayfly_hypervisor::turns::Share;

use super::scheduler::SCHEDULER;
use crate::bare::processor::once::Once;
use crate::bare::processor::{spin, timer};

/// A share of the machine's processor time.
pub(crate) struct Account {
    share: UnsafeCell<Share>,
    /// The VM whose share it is.
    vm: Option<String>,
}

// SAFETY: the share is reached under the scheduler's lock alone.
unsafe impl Send for Account {}
// SAFETY: as above.
unsafe impl Sync for Account {}

/// That of threads which work for no VM.
static OWN: Once<Arc<Account>> = Once::new();

impl Account {
    /// That of VM `vm`, of that weight, and of at most so many hundredths of a processor.
    pub(crate) fn new(vm: &str, weight: u32, cap: Option<u32>) -> Arc<Self> {
        Self::of(Some(vm.to_string()), weight, cap)
    }

    /// One of its own for a thread which works for no VM, and whose work strangers decide: it has no more than a VM has.
    pub(crate) fn apart() -> Arc<Self> {
        Self::of(None, Share::WEIGHT, None)
    }

    fn of(vm: Option<String>, weight: u32, cap: Option<u32>) -> Arc<Self> {
        let share = UnsafeCell::new(Share::new(weight, cap, timer::frequency()));
        let account = Arc::new(Self { share, vm });
        // SAFETY: under the lock.
        SCHEDULER.lock().turns.patience().add(unsafe { &*account.share() });
        account
    }

    /// The account of threads which work for no VM.
    pub(super) fn own() -> Arc<Self> {
        if OWN.get().is_none() {
            OWN.set(Self::of(None, Share::WEIGHT, None));
        }
        // Processors come up at once: another one may be about to set it.
        loop {
            if let Some(own) = OWN.get() {
                return Arc::clone(own);
            }
            spin::relax();
        }
    }

    /// Its share. The caller has the scheduler's lock while it reads or writes it.
    pub(super) fn share(&self) -> *mut Share {
        self.share.get()
    }

    /// The name of the VM whose share it is; none of the hypervisor's own.
    pub(crate) fn vm(&self) -> Option<&str> {
        self.vm.as_deref()
    }

    /// The processor time that its threads have had, in ticks, at the moment that is returned, too.
    pub(crate) fn spent(&self) -> (u64, u64) {
        let scheduler = SCHEDULER.lock();
        let now = timer::ticks();
        // SAFETY: under the lock.
        let spent = unsafe { (*self.share()).spent() };
        (spent + scheduler.running_of(self.share(), now), now)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // SAFETY: under the lock.
        SCHEDULER.lock().turns.patience().remove(unsafe { &*self.share() });
    }
}
