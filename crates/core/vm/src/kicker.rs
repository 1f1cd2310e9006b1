//! Bringing a vCPU out of the guest, from anywhere.

use alloc::sync::Arc;

use mayfly_platform::Platform;
use mayfly_platform::memory::{Handle, Kept, OutOfMemory};
use mayfly_stage2::{Hold, InvalidationWaiters, Resident};

use crate::requests::Whereabouts;
use crate::stall::Stalls;
use crate::{DirtyStall, Requests};

/// Asks things of one vCPU: a handle, of which there may be any number, and which may outlive the vCPU and its VM; what
/// is asked then is lost.
///
/// For interrupt handlers too: asking takes no lock and does not wait; cloning and dropping neither allocate nor
/// free (what the last handle leaves behind is freed by the VM's [reclaimer](mayfly_stage2::Reclaimer), or by the next
/// caller that drops a vCPU). It calls [`Platform::wake`] and [`Platform::interrupt`].
#[derive(Clone)]
pub struct Kicker {
    asked: Handle<Asked>,
}

/// What others have of a vCPU.
pub(crate) struct Asked {
    requests: Requests,
    platform: Arc<dyn Platform>,
    /// Where it sleeps when it does.
    waiters: InvalidationWaiters,
    stalls: Stalls,
}

impl Kicker {
    /// Makes the vCPU come out of the guest, and its [`Vcpu::run`](crate::Vcpu::run) return
    /// [`Exit::Kicked`](crate::Exit::Kicked); if it is not running, its next run.
    pub fn kick(&self) {
        self.asked.ask_exit();
    }

    /// As [`Kicker::kick`], but returns [`Exit::Asked`](crate::Exit::Asked), with `bits`, which mean what the embedder
    /// makes them mean, and with others that were asked by then. Asking nothing does nothing.
    pub fn ask(&self, bits: u16) {
        if bits != 0 {
            let Asked { requests, platform, .. } = &*self.asked;
            self.asked.bring_out(requests.ask_custom(bits, &**platform));
        }
    }

    /// What dirty logs have cost the vCPU since it was created: for a VMM to see whether its guest feels a log. Takes no
    /// lock, and does not bring the vCPU out.
    pub fn dirty_stall(&self) -> DirtyStall {
        self.asked.stalls.read()
    }

    pub(crate) fn stalls(&self) -> &Stalls {
        &self.asked.stalls
    }

    pub(crate) fn requests(&self) -> &Requests {
        &self.asked.requests
    }

    /// What others have of the vCPU.
    pub(crate) fn asked(&self) -> Handle<Asked> {
        self.asked.clone()
    }

    /// Waits until the vCPU has been outside the guest after [`Asked::ask_reload`].
    pub(crate) fn wait_outside(&self) {
        self.asked.requests.wait_outside(&*self.asked.platform);
    }
}

impl Asked {
    pub(crate) fn try_new(
        platform: Arc<dyn Platform>,
        waiters: InvalidationWaiters,
    ) -> Result<Kept<Self>, OutOfMemory> {
        Kept::try_new(Self { requests: Requests::new(), platform, waiters, stalls: Stalls::new() })
    }

    pub(crate) fn kicker(kept: &Kept<Self>) -> Kicker {
        Kicker { asked: kept.handle() }
    }

    /// Asks the vCPU to leave the guest and return.
    pub(crate) fn ask_exit(&self) {
        self.bring_out(self.requests.ask_exit(&*self.platform));
    }

    /// Asks the vCPU to load its root anew before it is in the guest again, and to come out if it is there.
    pub(crate) fn ask_reload(&self) {
        self.bring_out(self.requests.ask_reload(&*self.platform));
    }

    fn bring_out(&self, whereabouts: Whereabouts) {
        match whereabouts {
            Whereabouts::Awake => {}
            Whereabouts::Cpu(cpu) => self.platform.interrupt(cpu),
            Whereabouts::Asleep => self.waiters.look_again(&*self.platform),
        }
    }
}

// SAFETY: the hold is a field.
unsafe impl Resident for Asked {
    fn hold(&self) -> &Hold {
        self.requests.hold()
    }

    fn tell_when_out(&self) -> bool {
        self.requests.tell_when_out()
    }
}

impl core::fmt::Debug for Kicker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Kicker").field("requests", self.requests()).finish_non_exhaustive()
    }
}
