//! The way into the guest, and out of it ([`Guest`]).
//!
//! Exits that do not concern the core are answered here, and the guest goes on at once. Before each entry the vCPU's APIC is
//! looked at, and what is to be injected is.

use mayfly_vm::memslot::Gfn;
use mayfly_vm::platform::address::PAGE_SHIFT;
use mayfly_vm::stage2::Format;
use mayfly_vm::{Event, Guest, Requests, Translation};

use super::super::cpu::number;
use super::super::{switch, timer};
use super::cpu::GuestCpu;
use super::machine::{Machine, Next, Reason};
use super::pending::Pending;
use crate::svm::exit::Exit;

impl<F: Format, M: Machine> Guest<F> for GuestCpu<'_, F, M> {
    fn enter(&mut self, translation: Translation<'_, F>, requests: &Requests) -> Event {
        // What it is to come out with may be the access that is pending, which is not answered yet.
        if let Some(event) = self.told.take().or_else(|| self.complete()) {
            return event;
        }
        let cpu = number();
        if translation.cpu() as usize != cpu || self.machine.is_to_yield(cpu) {
            return Event::Request;
        }
        assert!(translation.tlbs() == self.confinement.tlbs, "the vCPU is one of another machine");
        // SAFETY: this is in `enter`, on the CPU that was named, of this machine; nothing takes it from there. VMRUN has the CPU
        // walk by what is loaded, and no instruction behind it does.
        let base = unsafe { translation.load() };
        self.vmcb.control.asid = base.vmid.0.into();
        self.vmcb.control.nested_cr3 = base.top.get() << PAGE_SHIFT;
        self.outdated.note(base.flush);
        // The alarm may not be set here.
        self.settled = None;
        self.resident.load();
        loop {
            // Interrupts are masked: one that comes later brings the guest out.
            if requests.any() {
                return Event::Request;
            }
            if !self.is_settled(timer::ticks())
                && let Some(event) = self.told.take().or_else(|| self.prepare())
            {
                return event;
            }
            let is_outdated = self.machine.enters(base.vmid);
            self.vmcb.control.tlb_control =
                self.outdated.take(is_outdated, self.confinement.features);
            self.machine.walks(base.top, base.vmid, self.vmcb.control.tlb_control);
            // SAFETY: the control block is this vCPU's, whose tables the core keeps until this returns; its maps are constants.
            // Interrupts are masked: they always are.
            unsafe { switch::enter(&mut self.vmcb, &mut self.registers.general) };
            self.machine.leaves(base.vmid);
            #[cfg(feature = "synthetic-next-rip")]
            self.say_next();
            self.after();
            let exit = Exit::from(&self.vmcb.control);
            if exit == Exit::Interrupt {
                self.settled = None;
                self.machine.count(Reason::Interrupt);
                match self.machine.interrupt() {
                    Next::Resume => {}
                    Next::Yield => return Event::Request,
                }
                continue;
            }
            self.machine.after();
            if matches!(exit, Exit::Invalid) {
                self.machine.refused();
            }
            if let Some(event) = self.answer(exit) {
                return event;
            }
            // What was answered may have woken a thread that comes before this one.
            if self.machine.is_to_yield(cpu) {
                return Event::Request;
            }
        }
    }

    fn cpu(&self) -> u32 {
        // What runs this asks on the processor where it is about to enter.
        number() as u32
    }

    fn forget(&mut self, _gfn: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        self.pending.as_mut().map_or(&mut [], Pending::data)
    }

    fn answered(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.answered = true;
            let at = pending.at();
            self.machine.answered(at);
        }
    }
}
