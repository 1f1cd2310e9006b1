//! The part of a vCPU's state that stays in the processor while its thread runs there, beside the general registers. It
//! is saved when the thread gives the processor up, whatever the thread is doing then.

use alloc::sync::Arc;
use core::cell::{Cell, UnsafeCell};

use mayfly_arm64::context::Resident;
use mayfly_arm64::virtual_gic::Shape;
use mayfly_arm64::{gic, timer};
use mayfly_vgic::{CpuInterface, affinity};

use crate::bare::devices::arch::Controller;
use crate::bare::processor::{shared, this_cpu};
use crate::bare::vm::counts::Counts;
use crate::bare::vm::run::Run;

/// The seat of a vCPU. Only its thread uses it.
pub(crate) struct Seat {
    pub(super) resident: Resident,
    /// The vCPU's number.
    vcpu: usize,
    vgic: Arc<Controller>,
    /// The shape of the virtual interface of the processors.
    shape: Shape,
    /// A `RefCell` would be looked at several times in each switch.
    interface: UnsafeCell<CpuInterface>,
    /// The interface's registers are in the processor.
    is_inside: Cell<bool>,
    /// The physical timer's interrupt, in this processor, is this vCPU's.
    has_timer: Cell<bool>,
    /// That interrupt may be active: it was taken, or made so. The guest's end of it by a list register is not seen
    /// here, so it may be inactive all the same; it never is active where this is false.
    holds_timer: Cell<bool>,
    /// Since when this vCPU has the processor, in ticks.
    since: Cell<u64>,
    counts: Arc<Counts>,
}

impl Seat {
    /// The seat of vCPU `vcpu` of a run, if there is such a vCPU.
    pub(crate) fn try_new(run: &Run, vcpu: usize) -> Option<Self> {
        let chipset = &run.chipset;
        let resident = Resident::new(affinity(vcpu), chipset.timer_offset);
        let interface = chipset.controller.cpu_interface(vcpu)?;
        Some(Self {
            resident,
            vcpu: interface.vcpu(),
            vgic: Arc::clone(&chipset.controller),
            shape: shared::get().interface,
            interface: UnsafeCell::new(interface),
            is_inside: Cell::new(false),
            has_timer: Cell::new(false),
            holds_timer: Cell::new(false),
            since: Cell::new(0),
            counts: Arc::clone(&run.counts),
        })
    }

    #[expect(clippy::mut_from_ref, reason = "one thread has this, and holds one at a time")]
    fn interface(&self) -> &mut CpuInterface {
        // SAFETY: one thread has this, since it is not `Sync`. It is private, and each caller drops the reference
        // before it returns. Meanwhile no caller looks for interrupts or gives the processor up, so that `Seat::put`
        // cannot come between; and the virtual GIC knows nothing of seats.
        unsafe { &mut *self.interface.get() }
    }

    /// Loads the pending interrupts of the guest into the processor.
    pub(crate) fn show_interrupts(&self) {
        if self.is_inside.get() {
            if !self.vgic.is_stale(self.vcpu) {
                return;
            }
            self.take_interrupts();
        }
        let interface = self.interface();
        self.vgic.enter(interface);
        self.shape.load(&interface.registers, interface.used());
        self.is_inside.set(true);
        if !self.has_timer.replace(true) {
            self.since.set(timer::about_now());
        }
        // While the guest's handler has not ended, the physical interrupt is not to come again: also on a processor
        // that it did not come to. And it is to come again once the guest has ended it by a register that only the
        // virtual GIC has seen: `ICC_DIR_EL1`, or one of the redistributor's.
        let holds = self.vgic.holds_physical(self.vcpu, timer::VIRTUAL_TIMER);
        if self.holds_timer.replace(holds) != holds
            && let Some(redistributor) = this_cpu::redistributor()
        {
            redistributor.set_active(timer::VIRTUAL_TIMER, holds);
        }
    }

    /// The physical timer's interrupt was taken, and is active until the guest has ended it.
    pub(crate) fn take_timer(&self) {
        self.holds_timer.set(true);
        let _ = self.vgic.take_linked(self.vcpu, timer::VIRTUAL_TIMER);
    }

    /// Takes back what the guest has done to its interrupts.
    pub(crate) fn take_interrupts(&self) {
        if !self.is_inside.take() {
            return;
        }
        let interface = self.interface();
        let used = interface.used();
        self.shape.save(&mut interface.registers, used);
        self.vgic.leave(interface);
    }

    /// Saves all of it, and takes it out of the processor.
    pub(crate) fn put(&self) {
        self.take_interrupts();
        if self.has_timer.take() {
            self.counts.spend(timer::about_now().saturating_sub(self.since.get()));
            if self.holds_timer.take() {
                if !timer::virtual_is_due() {
                    // Set anew before the guest saw that it was due.
                    let _ = self.vgic.withdraw_linked(self.vcpu, timer::VIRTUAL_TIMER);
                }
                if let Some(redistributor) = this_cpu::redistributor() {
                    redistributor.set_active(timer::VIRTUAL_TIMER, false);
                }
            }
        }
        self.resident.put();
    }

    /// Whether an interrupt is pending that the guest would take. After [`Seat::put`].
    pub(crate) fn is_pending(&self) -> bool {
        self.vgic.is_pending(self.interface())
    }

    /// When the guest's timer is due, in ticks, if it is on. After [`Seat::put`].
    pub(crate) fn timer_due(&self) -> Option<u64> {
        self.resident.timer_due()
    }

    /// Resets it.
    pub(crate) fn reset(&self) {
        if let Some(interface) = self.vgic.cpu_interface(self.vcpu) {
            self.put();
            *self.interface() = interface;
        }
    }
}

/// Whether it is the maintenance interrupt, which ends when the registers are out of the processor.
pub(super) fn is_maintenance(number: u32) -> bool {
    number == gic::MAINTENANCE
}
