//! Requests to a vCPU: `kvm_make_all_cpus_request` with `KVM_REQUEST_WAIT`.
//!
//! The vCPU says that it goes into the guest, and then looks for requests. The requesting thread sets a bit, and then
//! looks where the vCPU is. All accesses are sequentially consistent, so one of the two finds the other.

use mayfly_platform::Platform;
use mayfly_platform::sync::{AtomicU32, CacheLine, Ordering::SeqCst};

/// The vCPU is to load its root anew: `KVM_REQ_MMU_FREE_OBSOLETE_ROOTS`.
pub(super) const RELOAD: u32 = 1;
/// The vCPU is to return.
pub(super) const STOP: u32 = 2;

const OUTSIDE: u32 = 0;
const IN_GUEST: u32 = 1;
/// In the guest, and somebody sleeps until it is not.
const AWAITED: u32 = 2;

#[derive(Debug, Default)]
pub(crate) struct Kick {
    line: CacheLine<Line>,
}

#[derive(Debug, Default)]
struct Line {
    asked: AtomicU32,
    mode: AtomicU32,
}

impl Kick {
    pub(super) fn ask(&self, what: u32) {
        self.line.asked.fetch_or(what, SeqCst);
    }

    pub(super) fn any(&self) -> bool {
        self.line.asked.load(SeqCst) != 0
    }

    /// Whether `what` was asked; it is no more.
    pub(super) fn take(&self, what: u32) -> bool {
        self.line.asked.load(SeqCst) & what != 0
            && self.line.asked.fetch_and(!what, SeqCst) & what != 0
    }

    /// Goes into the guest, unless something is asked. Returns whether it did.
    pub(super) fn enter(&self, platform: &dyn Platform) -> bool {
        self.line.mode.store(IN_GUEST, SeqCst);
        let entered = !self.any();
        if !entered {
            self.leave(platform);
        }
        entered
    }

    pub(super) fn leave(&self, platform: &dyn Platform) {
        if self.line.mode.swap(OUTSIDE, SeqCst) == AWAITED {
            platform.wake(&self.line.mode);
        }
    }

    /// Waits until the vCPU has been outside the guest since `what` was asked.
    pub(super) fn wait_outside(&self, what: u32, platform: &dyn Platform) {
        let Line { asked, mode } = &*self.line;
        while asked.load(SeqCst) & what != 0 {
            if mode.compare_exchange(IN_GUEST, AWAITED, SeqCst, SeqCst) == Err(OUTSIDE) {
                return;
            }
            // Looked at again: it may be on another stay, with the request taken.
            if asked.load(SeqCst) & what != 0 {
                platform.wait(mode, AWAITED);
            }
        }
    }
}
