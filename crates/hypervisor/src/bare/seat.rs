//! What of a vCPU is in the processor that its thread runs on, beside the general registers: it comes out when the thread
//! gives the processor up, whatever the thread is doing then.

use alloc::sync::Arc;
use core::cell::{Cell, RefCell};

use mayfly_arm64::context::Resident;
use mayfly_arm64::{gic, timer};
use mayfly_vgic::{CpuInterface, Vgic};

use super::kick::Shared;
use super::life::Books;
use super::{cpus, world};

/// The GIC of a VM.
pub(super) type Gic = Vgic<Shared>;

/// The seat of a vCPU. Its thread's alone.
pub(super) struct Seat {
    pub(super) resident: Resident,
    vgic: Arc<Gic>,
    interface: RefCell<CpuInterface>,
    /// The interface's registers are in the processor.
    is_inside: Cell<bool>,
    /// The physical timer's interrupt, in this processor, is this vCPU's.
    has_timer: Cell<bool>,
    /// Since when the processor is this vCPU's, in ticks.
    since: Cell<u64>,
    books: Arc<Books>,
}

impl Seat {
    pub(super) fn new(
        resident: Resident,
        vgic: Arc<Gic>,
        interface: CpuInterface,
        books: Arc<Books>,
    ) -> Self {
        Self {
            resident,
            vgic,
            interface: RefCell::new(interface),
            is_inside: Cell::new(false),
            has_timer: Cell::new(false),
            since: Cell::new(0),
            books,
        }
    }

    fn vcpu(&self) -> usize {
        self.interface.borrow().vcpu()
    }

    /// Has the processor show the guest the interrupts that there are.
    pub(super) fn show_interrupts(&self) {
        if self.is_inside.get() {
            if !self.vgic.is_stale(self.vcpu()) {
                return;
            }
            self.take_interrupts();
        }
        let mut interface = self.interface.borrow_mut();
        self.vgic.enter(&mut interface);
        world::virtual_interface().load(&interface.registers);
        self.is_inside.set(true);
        // While the guest's handler has not ended, the physical interrupt is not to come again: also on a processor that it
        // did not come to.
        if self.has_timer.replace(true) {
            return;
        }
        self.since.set(timer::ticks());
        if self.vgic.holds_physical(interface.vcpu(), timer::VIRTUAL_TIMER)
            && let Some(redistributor) = cpus::redistributor()
        {
            redistributor.set_active(timer::VIRTUAL_TIMER, true);
        }
    }

    /// Takes back what the guest has done to its interrupts.
    pub(super) fn take_interrupts(&self) {
        if !self.is_inside.take() {
            return;
        }
        let mut interface = self.interface.borrow_mut();
        let used = interface.used();
        world::virtual_interface().save(&mut interface.registers, used);
        self.vgic.leave(&mut interface);
    }

    /// Takes it all out of the processor.
    pub(super) fn put(&self) {
        self.take_interrupts();
        if self.has_timer.take() {
            self.books.spend(timer::ticks().saturating_sub(self.since.get()));
            if !timer::virtual_is_due() {
                // Set anew before the guest saw that it was due.
                let _ = self.vgic.withdraw_linked(self.vcpu(), timer::VIRTUAL_TIMER);
            }
            if let Some(redistributor) = cpus::redistributor() {
                redistributor.set_active(timer::VIRTUAL_TIMER, false);
            }
        }
        self.resident.put();
    }

    /// Whether an interrupt waits that the guest would take. After [`Seat::put`].
    pub(super) fn is_pending(&self) -> bool {
        self.vgic.is_pending(&self.interface.borrow())
    }

    /// As after a reset.
    pub(super) fn reset(&self, interface: CpuInterface) {
        self.put();
        *self.interface.borrow_mut() = interface;
    }
}

/// The maintenance interrupt, which goes when the registers are out of the processor.
pub(super) fn is_maintenance(number: u32) -> bool {
    number == gic::MAINTENANCE
}
