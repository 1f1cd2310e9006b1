//! CPUs whose guests only an interrupt brings out, as on hardware: they do not look at what is asked of them.

use std::sync::{Arc, Condvar, Mutex};

use mayfly_memslot::Gfn;
use mayfly_vm::{Access, Event, Guest, Requests, Translation};

use super::{Hardware, Stop, TestFormat, perform};

/// The interrupts of all CPUs.
#[derive(Default)]
pub(crate) struct Interrupts {
    /// By CPU; those that were never interrupted may be missing.
    pending: Mutex<Vec<bool>>,
    arrived: Condvar,
}

impl Interrupts {
    pub(crate) fn send(&self, cpu: u32) {
        *pending(&mut self.pending.lock().unwrap(), cpu) = true;
        self.arrived.notify_all();
    }

    /// Takes what is pending, as a hypervisor does that has not masked it: then it is gone.
    fn take(&self, cpu: u32) {
        *pending(&mut self.pending.lock().unwrap(), cpu) = false;
    }

    /// The guest, until it is interrupted; at once, if an interrupt is pending.
    fn run_guest(&self, cpu: u32) {
        let mut all = self.pending.lock().unwrap();
        while !*pending(&mut all, cpu) {
            all = self.arrived.wait(all).unwrap();
        }
    }
}

fn pending(all: &mut Vec<bool>, cpu: u32) -> &mut bool {
    let cpu = cpu as usize;
    if all.len() <= cpu {
        all.resize(cpu + 1, false);
    }
    &mut all[cpu]
}

/// A guest that makes its access, if it has one, and then stays for good, until its CPU is interrupted.
pub(crate) struct Deaf {
    pub(crate) hardware: Arc<Hardware>,
    pub(crate) cpu: u32,
    pub(crate) access: Option<Access>,
    /// Where it stops before it masks interrupts, when it has no access to make.
    pub(crate) unmasked: Option<Stop>,
    /// Told when it is in the guest, or all but.
    pub(crate) inside: Box<dyn FnMut() + Send>,
}

impl Deaf {
    pub(crate) fn new(hardware: &Arc<Hardware>, cpu: u32) -> Self {
        let (hardware, inside) = (hardware.clone(), Box::new(|| ()));
        Self { hardware, cpu, access: None, unmasked: None, inside }
    }
}

impl Guest<TestFormat> for Deaf {
    fn enter(&mut self, translation: Translation<TestFormat>, requests: &Requests) -> Event {
        // SAFETY: a program that stands for a guest.
        let _ = unsafe { translation.load() };
        self.access.take_if(|access| perform::<TestFormat>(translation, *access).is_some());
        if let Some(access) = self.access {
            return Event::Access(access);
        }
        if let Some(stop) = self.unmasked.take() {
            stop.here();
        }
        let interrupts = self.hardware.interrupts();
        interrupts.take(self.cpu);
        // Masked from here on, so what comes is pending.
        if !requests.any() {
            (self.inside)();
            interrupts.run_guest(self.cpu);
        }
        Event::Request
    }

    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn forget(&mut self, _gfn: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        unreachable!("it accesses memory alone")
    }

    fn answered(&mut self) {}
}
