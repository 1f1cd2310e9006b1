//! The part of a vCPU's state that stays in the processor while its thread runs there, beside the general registers. It is
//! saved when the thread gives the processor up, whatever the thread is doing then.

use alloc::boxed::Box;
use alloc::sync::Arc;

use mayfly_vapic::LocalApic;
use mayfly_x86::bare::switch::Resident;
use mayfly_x86::bare::timer;

use crate::bare::devices::arch::Controller;
use crate::bare::vm::run::Run;

/// The seat of a vCPU. Only its thread uses it.
pub(crate) struct Seat {
    /// It has some KiB, which the stack of the thread has not.
    pub(super) resident: Box<Resident>,
    /// The vCPU's number.
    pub(super) vcpu: usize,
    pub(super) controller: Arc<Controller>,
}

impl Seat {
    /// The seat of vCPU `vcpu` of a run, if there is such a vCPU.
    pub(crate) fn try_new(run: &Run, vcpu: usize) -> Option<Self> {
        let controller = Arc::clone(&run.chipset.controller);
        let resident = resident();
        (vcpu < controller.vcpus()).then_some(Self { resident, vcpu, controller })
    }

    /// Saves all of it, and takes it out of the processor.
    pub(crate) fn put(&self) {
        self.resident.put();
    }

    /// Whether something new waits for the vCPU, which has come out to wait. After [`Seat::put`].
    pub(crate) fn is_pending(&self) -> bool {
        self.controller.is_stale(self.vcpu) || self.resident.due() <= timer::ticks()
    }

    /// When the guest's timer will be due, in ticks, if it will be. After [`Seat::put`].
    pub(crate) fn next_timer(&self) -> Option<u64> {
        Some(self.resident.due()).filter(|due| *due != timer::NEVER)
    }

    /// Gives away the vCPU's side of the APICs: the vCPU runs no more. After [`Seat::put`].
    pub(crate) fn take_interface(&self) -> Option<LocalApic> {
        self.controller.local_apic(self.vcpu)
    }

    #[expect(clippy::unused_self, reason = "the processor of a vCPU has its APIC here")]
    /// Has the vCPU's side of the APICs be as another one's was, which its processor has.
    pub(crate) fn resume(&self, _interface: LocalApic) {}

    /// Takes it out of the processor: the vCPU's thread begins anew.
    pub(crate) fn reset(&self) {
        self.put();
    }
}

/// Not inlined: it is on the stack while it is made.
#[inline(never)]
fn resident() -> Box<Resident> {
    Box::new(Resident::new())
}
