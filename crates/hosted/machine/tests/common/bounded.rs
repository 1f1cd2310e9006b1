//! A guest that gives up, where it would fault for ever.

use mayfly_machine::Cpu;
use mayfly_stage2::Format;
use mayfly_vm::memslot::Gfn;
use mayfly_vm::{Event, Guest, Requests, Translation};

/// Makes its program's accesses, and halts at the `most`th fault.
pub(crate) struct Bounded<'a, F: Format> {
    cpu: &'a mut Cpu<F>,
    most: u32,
    faults: u32,
}

impl<'a, F: Format> Bounded<'a, F> {
    pub(crate) fn new(cpu: &'a mut Cpu<F>, most: u32) -> Self {
        Self { cpu, most, faults: 0 }
    }

    /// How often it has faulted.
    pub(crate) fn faults(&self) -> u32 {
        self.faults
    }
}

impl<F: Format> Guest<F> for Bounded<'_, F> {
    fn enter(&mut self, translation: Translation<F>, requests: &Requests) -> Event {
        let event = self.cpu.enter(translation, requests);
        self.faults += u32::from(matches!(event, Event::Access(_)));
        if self.faults < self.most { event } else { Event::Halt }
    }

    fn cpu(&self) -> u32 {
        self.cpu.cpu()
    }

    fn forget(&mut self, gfn: Gfn) {
        self.cpu.forget(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        self.cpu.data()
    }

    fn answered(&mut self) {
        self.cpu.answered();
    }
}
