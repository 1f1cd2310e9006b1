//! Guests that a vCPU runs though they are not on its machine, or not on the CPU that they name.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, yield_now};

use mayfly_machine::{
    Cpu, CpuTlb, HostMemory, Instruction, Machine, MachineVcpu, Processors, Program,
};
use mayfly_memslot::{Gfn, Gpa, PAGE_SIZE, SlotId};
use mayfly_platform::testing::threads::{Over, until};
use mayfly_stage2::{Ept, Permissions};
use mayfly_vm::{Access, Event, Exit, Guest, Requests, Translation};

const GPA: Gpa = Gpa::new(0x1000);

/// More VMs than VMIDs of so many bits.
const VMS: usize = 600;
const VMID_BITS: u32 = 9;

/// A vCPU of a VM of its own, and the VM's memory, a page at [`GPA`].
fn vcpu(machine: &Machine) -> (MachineVcpu, HostMemory) {
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(PAGE_SIZE).unwrap();
    vm.set_memory_region(&memory.region(SlotId::main(0), GPA)).unwrap();
    (vm.create_vcpu(0).unwrap(), memory)
}

fn touch() -> Program {
    vec![Instruction::Touch { gpa: GPA, len: 8, value: 1 }]
}

#[test]
fn a_guest_on_a_cpu_of_another_machine_is_not_entered() {
    let (first, second) = (Machine::new().unwrap(), Machine::new().unwrap());
    let (mut vcpu, _memory) = vcpu(&second);
    let mut guest: Cpu = first.cpu(touch());
    assert!(catch_unwind(AssertUnwindSafe(|| vcpu.run(&mut guest))).is_err());
    assert_eq!(guest.named(), None, "its CPU walks frames of its own machine by their numbers");
    assert_eq!(vcpu.run(&mut second.cpu(touch())), Exit::Halt);
}

/// Reads a page, and stays in the guest until it may go. Says that it is on another CPU than it is.
struct Lying<'a> {
    machine: &'a Machine,
    tlb: CpuTlb,
    says: u32,
    is_in: &'a AtomicBool,
    may_go: &'a AtomicBool,
}

impl Guest<Ept> for Lying<'_> {
    fn enter(&mut self, translation: Translation<Ept>, _: &Requests) -> Event {
        let arena = self.machine.hardware().arena();
        let mut guest = self.tlb.enter::<Ept>(arena, &translation);
        loop {
            guest.poll();
            if guest.translate::<Ept>(arena, GPA.gfn(), Permissions::READ).is_err() {
                return Event::Access(Access::data(GPA, 8, false));
            }
            self.is_in.store(true, Ordering::Release);
            if self.may_go.load(Ordering::Acquire) {
                return Event::Halt;
            }
            yield_now();
        }
    }

    fn cpu(&self) -> u32 {
        self.says
    }

    fn forget(&mut self, gfn: Gfn) {
        self.tlb.forget(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        &mut []
    }

    fn answered(&mut self) {}
}

#[test]
fn a_guest_that_names_another_cpu_than_its_own_is_not_entered_under_a_vmid_that_others_get() {
    let processors = Processors { vmid_bits: VMID_BITS, ..Processors::default() };
    let machine = Machine::with_processors(1 << 16, processors).unwrap();
    let mut others: Cpu = machine.cpu(touch());
    let (is_in, may_go) = (AtomicBool::new(false), AtomicBool::new(true));
    let tlb = machine.hardware().tlbs().cpu();
    let (is_in, may_go, says) = (&is_in, &may_go, others.cpu());
    let mut guest = Lying { machine: &machine, tlb, says, is_in, may_go };
    let (mut lied_to, _memory) = vcpu(&machine);
    let lies = catch_unwind(AssertUnwindSafe(|| lied_to.run(&mut guest)));
    let Some((_, vmid)) = guest.tlb.named() else {
        assert!(lies.is_err(), "it was not entered");
        return;
    };
    is_in.store(false, Ordering::Release);
    may_go.store(false, Ordering::Release);
    let shared = scope(|scope| {
        scope.spawn(|| {
            let _over = (Over(is_in), Over(may_go));
            assert_eq!(lied_to.run(&mut guest), Exit::Halt);
        });
        let _over = Over(may_go);
        until(may_go, || is_in.load(Ordering::Acquire));
        let mut kept = Vec::new();
        let meets = |_| {
            others.load(touch());
            let (mut other, memory) = vcpu(&machine);
            assert_eq!(other.run(&mut others), Exit::Halt);
            kept.push((other, memory));
            others.named().unwrap().1 == vmid
        };
        (0..VMS).any(meets)
    });
    assert!(!shared, "two roots are walked under {vmid:?}");
}
