//! What of a vCPU is in the processor that its thread runs on, beside the general registers: it comes out when the thread
//! gives the processor up, whatever the thread is doing then.

use alloc::sync::Arc;
use core::cell::{Cell, UnsafeCell};

use mayfly_arm64::context::Resident;
use mayfly_arm64::virtual_gic::Shape;
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
    /// The vCPU's number.
    vcpu: usize,
    vgic: Arc<Gic>,
    /// What processors have of the interface.
    shape: Shape,
    /// A `RefCell` would be looked at several times in each switch.
    interface: UnsafeCell<CpuInterface>,
    /// The interface's registers are in the processor.
    is_inside: Cell<bool>,
    /// The physical timer's interrupt, in this processor, is this vCPU's.
    has_timer: Cell<bool>,
    /// That interrupt may be active: it was taken, or made so. The guest's end of it by a list register is not seen here,
    /// so it may be inactive all the same; it never is active where this is false.
    holds_timer: Cell<bool>,
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
            vcpu: interface.vcpu(),
            vgic,
            shape: world::virtual_interface(),
            interface: UnsafeCell::new(interface),
            is_inside: Cell::new(false),
            has_timer: Cell::new(false),
            holds_timer: Cell::new(false),
            since: Cell::new(0),
            books,
        }
    }

    #[expect(clippy::mut_from_ref, reason = "one thread has this, and holds one at a time")]
    fn interface(&self) -> &mut CpuInterface {
        // SAFETY: one thread has this, for it is not `Sync`. It is private, and each that it gives is gone before the function
        // is over that asked for it: which looks for no interrupts meanwhile, nor gives the processor up, by either of which
        // `Seat::put` might come between; and the virtual GIC knows nothing of seats.
        unsafe { &mut *self.interface.get() }
    }

    /// Has the processor show the guest the interrupts that there are.
    pub(super) fn show_interrupts(&self) {
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
        // While the guest's handler has not ended, the physical interrupt is not to come again: also on a processor that it
        // did not come to. And it is to come again once the guest has ended it by a register that only the virtual GIC
        // has seen: `ICC_DIR_EL1`, or one of the redistributor's.
        let holds = self.vgic.holds_physical(self.vcpu, timer::VIRTUAL_TIMER);
        if self.holds_timer.replace(holds) != holds
            && let Some(redistributor) = cpus::redistributor()
        {
            redistributor.set_active(timer::VIRTUAL_TIMER, holds);
        }
    }

    /// The physical timer's interrupt was taken, and is active until the guest has ended it.
    pub(super) fn take_timer(&self) {
        self.holds_timer.set(true);
        let _ = self.vgic.take_linked(self.vcpu, timer::VIRTUAL_TIMER);
    }

    /// Takes back what the guest has done to its interrupts.
    pub(super) fn take_interrupts(&self) {
        if !self.is_inside.take() {
            return;
        }
        let interface = self.interface();
        let used = interface.used();
        self.shape.save(&mut interface.registers, used);
        self.vgic.leave(interface);
    }

    /// Takes it all out of the processor.
    pub(super) fn put(&self) {
        self.take_interrupts();
        if self.has_timer.take() {
            self.books.spend(timer::about_now().saturating_sub(self.since.get()));
            if self.holds_timer.take() {
                if !timer::virtual_is_due() {
                    // Set anew before the guest saw that it was due.
                    let _ = self.vgic.withdraw_linked(self.vcpu, timer::VIRTUAL_TIMER);
                }
                if let Some(redistributor) = cpus::redistributor() {
                    redistributor.set_active(timer::VIRTUAL_TIMER, false);
                }
            }
        }
        self.resident.put();
    }

    /// Whether an interrupt waits that the guest would take. After [`Seat::put`].
    pub(super) fn is_pending(&self) -> bool {
        self.vgic.is_pending(self.interface())
    }

    /// As after a reset.
    pub(super) fn reset(&self, interface: CpuInterface) {
        self.put();
        *self.interface() = interface;
    }
}

/// The maintenance interrupt, which goes when the registers are out of the processor.
pub(super) fn is_maintenance(number: u32) -> bool {
    number == gic::MAINTENANCE
}
