//! The part of a vCPU's state that stays in the processor while its thread runs there, beside the general registers. It
//! is saved when the thread gives the processor up, whatever the thread is doing then.
//!
//! The guest's two timers interrupt by levels. While the registers of a timer are in the processor, its physical
//! interrupt is taken at EL2, and stays active until the guest's end of its own interrupt ends it: so it does not come
//! again meanwhile. The virtual GIC is told that the line is high when the physical interrupt is taken, or when a vCPU is
//! about to sleep whose timer is due. The guest turns its timer off without an exit. So the line is looked at again
//! before the virtual GIC is asked for its state, and before it loads interrupts: what has fallen is withdrawn. A vCPU
//! that is about to sleep sets an alarm for timers that are not due yet.

use alloc::sync::Arc;
use core::cell::{Cell, UnsafeCell};

use mayfly_arm64::context::Resident;
use mayfly_arm64::virtual_gic::Shape;
use mayfly_arm64::{gic, timer};
use mayfly_vgic::{CpuInterface, affinity};

use crate::bare::devices::arch::Controller;
use crate::bare::processor::{shared, this_cpu};
use crate::bare::vm::run::Run;

const VIRTUAL: u8 = 1;
const PHYSICAL: u8 = 2;
/// The vCPU's physical timer has been due, so that the virtual GIC may know of it.
const USES_PHYSICAL: u8 = 4;

/// The vCPU uses performance counters, whose line the virtual GIC is to see.
const COUNTERS: u8 = 8;

/// The timers of a guest: the bit of each, and its interrupt.
const TIMERS: [(u8, u32); 2] = [(VIRTUAL, timer::VIRTUAL_TIMER), (PHYSICAL, timer::PHYSICAL_TIMER)];

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
    /// Those of its timers, a bit each ([`VIRTUAL`], [`PHYSICAL`]), whose physical interrupt may be active in this
    /// processor: it was taken, or made so. The guest's end of it by a list register is not seen here, so it may be
    /// inactive all the same; it never is active where its bit is clear. [`USES_PHYSICAL`] and [`COUNTERS`] stay.
    held: Cell<u8>,
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
            held: Cell::new(0),
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
        // While the guest's handler has not ended, the physical interrupt is not to come again: also on a processor
        // that it did not come to. And it is to come again once the guest has ended it by a register that only the
        // virtual GIC has seen: `ICC_DIR_EL1`, or one of the redistributor's.
        let holds = self.vgic.holds_physical(self.vcpu, timer::VIRTUAL_TIMER);
        if self.held.get() != u8::from(holds) * VIRTUAL {
            self.hold_timers();
        }
    }

    /// Has the physical interrupts of its timers be active as the virtual GIC says.
    #[inline(never)]
    fn hold_timers(&self) {
        let held = self.held.get();
        let mut holds = held & (USES_PHYSICAL | COUNTERS);
        for (bit, number) in TIMERS {
            if self.vgic.holds_physical(self.vcpu, number) {
                holds |= bit;
            }
            if (held ^ holds) & bit != 0
                && let Some(redistributor) = this_cpu::redistributor()
            {
                redistributor.set_active(number, holds & bit != 0);
            }
        }
        self.held.set(holds);
    }

    /// The physical interrupt of a timer was taken, and is active until the guest has ended it.
    pub(crate) fn take_timer(&self, interrupt: u32) {
        let bits =
            if interrupt == timer::PHYSICAL_TIMER { PHYSICAL | USES_PHYSICAL } else { VIRTUAL };
        self.held.set(self.held.get() | bits);
        let _ = self.vgic.take_linked(self.vcpu, interrupt);
    }

    /// Has the virtual GIC see which of the timers that have been due are due no more.
    pub(crate) fn sample_timers(&self) {
        let held = self.held.get();
        for (bit, number) in TIMERS {
            if held & bit != 0 && !timer::is_high(number) {
                let _ = self.vgic.withdraw_linked(self.vcpu, number);
            }
        }
    }

    /// Has the timers' physical interrupts be inactive in this processor.
    fn release_timers(&self) {
        let held = self.held.get();
        for (bit, number) in TIMERS {
            if held & bit != 0
                && let Some(redistributor) = this_cpu::redistributor()
            {
                redistributor.set_active(number, false);
            }
        }
        self.held.set(held & (USES_PHYSICAL | COUNTERS));
    }

    /// Takes back what the guest has done to its interrupts.
    pub(crate) fn take_interrupts(&self) {
        if self.is_inside.take() {
            self.leave();
            if self.held.get() != 0 {
                self.sample_timers();
            }
        }
    }

    /// Takes the interface's registers out of the processor, where they are.
    #[inline]
    fn leave(&self) {
        let interface = self.interface();
        let used = interface.used();
        self.shape.save(&mut interface.registers, used);
        self.vgic.leave(interface);
    }

    /// Saves all of it, and takes it out of the processor.
    pub(crate) fn put(&self) {
        if self.held.get() != 0 {
            self.put_timers();
        } else if self.is_inside.take() {
            self.leave();
        }
        self.resident.put();
    }

    /// Saves the interrupts of a vCPU whose timers' physical interrupts may be active, or that uses performance counters.
    #[inline(never)]
    fn put_timers(&self) {
        self.take_interrupts();
        self.release_timers();
        self.show_counters();
    }

    /// The line of the vCPU's performance counters, which it uses, is high or low.
    pub(super) fn set_counters_line(&self, high: bool) {
        self.held.set(self.held.get() | COUNTERS);
        let _ = self.vgic.set_ppi(self.vcpu, gic::COUNTERS, high);
    }

    /// Has the virtual GIC see the line of the performance counters, where the vCPU uses some.
    pub(super) fn show_counters(&self) {
        if self.held.get() & COUNTERS != 0
            && let Some(high) = self.resident.counters_line()
        {
            self.set_counters_line(high);
        }
    }

    /// Whether an interrupt is pending that the guest would take. After [`Seat::put`].
    pub(crate) fn is_pending(&self) -> bool {
        self.vgic.is_pending(self.interface())
    }

    /// When the next of the guest's timers will be due, in ticks, if one will be. The virtual GIC sees those that are due.
    /// After [`Seat::put`].
    pub(crate) fn next_timer(&self) -> Option<u64> {
        let now = timer::ticks();
        let due = [self.resident.virtual_timer_due(now), self.resident.physical_timer_due(now)];
        let mut next = None;
        for ((bit, number), due) in TIMERS.into_iter().zip(due) {
            match due {
                Some(due) if due > now => next = Some(next.map_or(due, |next: u64| next.min(due))),
                Some(_) => {
                    if bit == PHYSICAL {
                        self.held.set(self.held.get() | USES_PHYSICAL);
                    }
                    let _ = self.vgic.take_linked(self.vcpu, number);
                }
                None => {}
            }
        }
        next
    }

    /// Gives away the vCPU's side of the GIC: the vCPU runs no more. After [`Seat::put`].
    pub(crate) fn take_interface(&self) -> Option<CpuInterface> {
        let reset = self.vgic.cpu_interface(self.vcpu)?;
        Some(core::mem::replace(self.interface(), reset))
    }

    /// Has the vCPU's side of the GIC be as another one's was, before the vCPU first runs. Its other registers are loaded
    /// already.
    pub(crate) fn resume(&self, interface: CpuInterface) {
        *self.interface() = interface;
        let (physical_timer, counters) = self.resident.uses();
        let physical_timer = if physical_timer { USES_PHYSICAL } else { 0 };
        self.held.set(physical_timer | if counters { COUNTERS } else { 0 });
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
