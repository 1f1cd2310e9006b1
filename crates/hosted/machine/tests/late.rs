//! Entries that walks do not find before a barrier, and the barriers that the core's contract has an embedder make: what
//! comes of it when one is left out.

#[path = "common/bounded.rs"]
mod bounded;

use std::thread;

use mayfly_hwtrace::{Options, Rule};
use mayfly_machine::walk::WalkFault;
use mayfly_machine::{
    Checked, HostMemory, Instruction, LeftOut, Machine, MachineVcpu, MachineVm, Rigour,
};
use mayfly_memslot::{Gpa, PAGE_SIZE, SlotId};
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{Arm, Ept, Format, Npt, Permissions, Sv39x4, Sv48x4};
use mayfly_vm::Exit;

use bounded::Bounded;

const GPA: Gpa = Gpa::new(0x1000);

/// Faults after which a guest gives up.
const FAULTS: u32 = 100;

struct Stage<F: Format> {
    machine: Machine<F>,
    vm: MachineVm<F>,
    vcpu: MachineVcpu<F>,
    memory: HostMemory,
    checked: Checked,
}

impl<F: Format> Stage<F> {
    fn new(rigour: Rigour) -> Self {
        let machine = Machine::<F>::with_frames(1 << 12).unwrap();
        let (checked, sink) = Checked::new(Options::default());
        machine.hardware().record(sink);
        machine.hardware().set_rigour(rigour);
        let vm = machine.create_vm().unwrap();
        let memory = machine.map(PAGE_SIZE).unwrap();
        vm.set_memory_region(&memory.region(SlotId::main(0), GPA)).unwrap();
        let vcpu = vm.create_vcpu(0).unwrap();
        Self { machine, vm, vcpu, memory, checked }
    }

    /// Has the guest write to the page. Returns how often it faults, and by what it translates.
    fn touch(&mut self) -> (u32, Pfn, Vmid) {
        let program = vec![Instruction::Touch { gpa: GPA, len: 1, value: 7 }];
        let mut cpu = self.machine.cpu(program);
        let mut guest = Bounded::new(&mut cpu, FAULTS);
        assert_eq!(self.vcpu.run(&mut guest), Exit::Halt);
        let (faults, (top, vmid)) = (guest.faults(), cpu.named().unwrap());
        (faults, top, vmid)
    }

    fn end(self) -> Vec<Rule> {
        let Self { machine, vm, vcpu, memory, checked } = self;
        drop(vcpu);
        vm.destroy();
        drop(memory);
        drop(machine);
        let mut rules: Vec<_> = checked.finish().into_iter().map(|broken| broken.rule).collect();
        rules.dedup();
        rules
    }
}

/// How often a page's first write faults where an entry to the guest orders no walk, and then where it does; and what
/// the checker says.
fn faults<F: Format>(rigour: Rigour) -> ([u32; 2], Vec<Rule>) {
    let mut stage = Stage::<F>::new(rigour);
    let faults = [LeftOut::EntryBarrier, LeftOut::Nothing].map(|left_out| {
        stage.machine.hardware().tlbs().leave_out(left_out);
        stage.touch().0
    });
    (faults, stage.end())
}

#[test]
fn without_the_barrier_before_the_guest_it_faults_for_ever() {
    let all = Rigour::all();
    assert_eq!(faults::<Arm<40>>(all), ([FAULTS, 0], vec![Rule::NoBarrier]));
    assert_eq!(faults::<Sv39x4>(all), ([FAULTS, 0], vec![Rule::NoBarrier]));
    // Nothing is late there; nor where it is not asked for.
    assert_eq!(faults::<Ept>(all), ([1, 0], vec![]));
    assert_eq!(faults::<Npt>(all), ([1, 0], vec![]));
    let kind = all - Rigour::WALKS_LATE;
    assert_eq!(faults::<Arm<40>>(kind), ([1, 0], vec![Rule::NoBarrier]));
}

/// What a CPU that stays in the guest finds of a page after it was taken away, and what the checker says.
fn finds_when_taken_away<F: Format>(left_out: LeftOut) -> (bool, Vec<Rule>) {
    let mut stage = Stage::<F>::new(Rigour::all());
    let (_, top, vmid) = stage.touch();
    let hardware = stage.machine.hardware().clone();
    let mut cpu = hardware.tlbs().cpu();
    let mut guest = cpu.enter_guest(top, vmid);
    let look = |guest: &mut mayfly_machine::tlb::InGuest<'_>| -> Result<(), WalkFault> {
        guest.translate::<F>(hardware.arena(), GPA.gfn(), Permissions::READ).map(|_| ())
    };
    assert_eq!(look(&mut guest), Ok(()));
    hardware.tlbs().leave_out(left_out);
    thread::scope(|scope| {
        let (space, range) = (stage.machine.space(), stage.memory.hvas());
        let host = scope.spawn(move || space.munmap(range).unwrap());
        while !host.is_finished() {
            guest.poll();
            thread::yield_now();
        }
    });
    let finds = look(&mut guest).is_ok();
    drop(guest);
    drop(cpu);
    hardware.tlbs().leave_out(LeftOut::Nothing);
    drop(hardware);
    (finds, stage.end())
}

#[test]
fn without_the_barrier_before_an_invalidation_what_was_taken_away_is_found_again() {
    let (broken, kept) = ((true, vec![Rule::NoBarrier]), (false, vec![]));
    assert_eq!(finds_when_taken_away::<Arm<48>>(LeftOut::IssueBarrier), broken);
    assert_eq!(finds_when_taken_away::<Sv48x4>(LeftOut::IssueBarrier), broken);
    assert_eq!(finds_when_taken_away::<Arm<48>>(LeftOut::Nothing), kept);
    assert_eq!(finds_when_taken_away::<Ept>(LeftOut::IssueBarrier), kept);
}
