//! A vCPU that moves between CPUs, as TLBs are concerned.

use mayfly_memslot::Gfn;
use mayfly_stage2::{Ept, Format, Npt, Sv39x4};
use mayfly_vm::{Event, Exit, Guest, Requests, SlotZap, Translation};

use crate::common::{Setup, TestFormat, TestVcpu};

/// A guest that halts on its CPU, and keeps whether that had to forget something.
struct On {
    cpu: u32,
    flush: Option<bool>,
}

impl<F: Format> Guest<F> for On {
    fn enter(&mut self, translation: Translation<F>, _requests: &Requests) -> Event {
        // SAFETY: a program that stands for a guest.
        self.flush = Some(unsafe { translation.load() }.flush);
        Event::Halt
    }

    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut []
    }

    fn answered(&mut self) {}
}

fn flushes<F: Format>(vcpu: &mut TestVcpu<F>, cpu: u32) -> bool {
    let mut guest = On { cpu, flush: None };
    assert_eq!(vcpu.run(&mut guest), Exit::Halt);
    guest.flush.unwrap()
}

/// Whether a vCPU flushes on CPUs 1, 1, 2, 1, 1, 2.
fn back_and_forth<F: Format>() -> [bool; 6] {
    let setup = Setup::<F>::in_format(SlotZap::Range, 8);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    [1, 1, 2, 1, 1, 2].map(|cpu| flushes(&mut vcpu, cpu))
}

#[test]
fn a_vcpu_that_comes_back_to_a_cpu_flushes_where_its_guest_reaches_one_cpu_at_a_time() {
    let where_it_was = [false, false, false, true, false, true];
    assert_eq!(back_and_forth::<Sv39x4>(), where_it_was);
    assert_eq!(back_and_forth::<Npt>(), where_it_was);
    assert_eq!(back_and_forth::<Ept>(), where_it_was);
    assert_eq!(back_and_forth::<TestFormat>(), [false; 6], "all CPUs have forgotten");
}
