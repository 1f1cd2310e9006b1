//! Rights that an entry gains, and CPUs whose TLBs remember it without them.

#[path = "common/bounded.rs"]
mod bounded;
#[path = "common/formats.rs"]
#[macro_use]
mod formats;

use mayfly_machine::address_space::Protection as Host;
use mayfly_machine::{Cpu, Instruction, Machine, MachineVcpu, MachineVm, Program};
use mayfly_memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::address::Pfn;
use mayfly_stage2::Format;
use mayfly_vm::{Change, Exit, PageChange, Protection, Reason};

use bounded::Bounded;

const GPA: Gpa = Gpa::new(0x1000);

/// Faults that one access takes at most: who resolves one sees to it that it does not come again.
const FAULTS: u32 = 1;

/// A vCPU, and its CPU.
struct Player<F: Format> {
    vcpu: MachineVcpu<F>,
    cpu: Cpu<F>,
}

impl<F: Format> Player<F> {
    fn run(&mut self, program: Program) {
        self.cpu.load(program);
        let mut guest = Bounded::new(&mut self.cpu, FAULTS + 1);
        let exit = self.vcpu.run(&mut guest);
        assert!(guest.faults() <= FAULTS, "{}: the access is never made", F::NAME);
        assert_eq!((exit, self.cpu.mismatches()), (Exit::Halt, 0));
    }

    fn write(&mut self, value: u64) {
        self.run(vec![Instruction::Touch { gpa: GPA, len: 1, value }]);
    }

    fn read(&mut self, value: u64) {
        self.run(vec![Instruction::Verify { gpa: GPA, len: 1, value }]);
    }
}

struct Stage<F: Format> {
    machine: Machine<F>,
    vm: MachineVm<F>,
    players: [Player<F>; 2],
    page: Hva,
}

impl<F: Format> Stage<F> {
    /// Two vCPUs, and a page of memory.
    fn new(flags: Flags) -> Self {
        let machine = Machine::<F>::with_frames(1 << 12).unwrap();
        let vm = machine.create_vm().unwrap();
        let backing = mayfly_machine::address_space::Backing::Pages;
        let page = machine.space().mmap(PAGE_SIZE, backing, Host::ReadWrite).unwrap();
        let slot = SlotId::main(0);
        let region = Region { slot, gpa: GPA, size: PAGE_SIZE, backing: page, flags };
        vm.set_memory_region(&region).unwrap();
        let players = [0, 1]
            .map(|id| Player { vcpu: vm.create_vcpu(id).unwrap(), cpu: machine.cpu(Vec::new()) });
        Self { machine, vm, players, page }
    }

    fn frame(&self) -> Pfn {
        self.machine.space().resolve(self.page, false).unwrap().pfn
    }
}

#[test]
fn two_cpus_hold_the_faulting_entry_one_relaxes_it_and_both_finish() {
    fn check<F: Format>() {
        // What is logged is mapped to be read, until it is written.
        let mut stage = Stage::<F>::new(Flags::LOG_DIRTY_PAGES);
        let [one, other] = &mut stage.players;
        one.read(0);
        other.read(0);
        one.write(1);
        other.write(2);
        one.read(2);
    }
    in_formats!(check);
}

#[test]
fn what_the_host_has_allowed_to_be_written_is_written_by_who_remembers_otherwise() {
    fn check<F: Format>(ends_before: bool) {
        let mut stage = Stage::<F>::new(Flags::empty());
        stage.players[0].write(1);
        let frame = stage.frame();
        let change =
            Change { reason: Reason::Merge, old: Protection::ReadWrite, new: Protection::ReadOnly };
        let invalidation = stage.vm.invalidate_start(stage.page, PAGE_SIZE, change);
        for player in &mut stage.players {
            player.read(1);
        }
        let protection = Protection::ReadWrite;
        let change = PageChange { old: frame, new: frame, protection, same_contents: true };
        // SAFETY: it is the page's own frame, which the guest had with these rights before.
        unsafe { stage.vm.change_pte(&invalidation, stage.page, &change) };
        let invalidation = (!ends_before).then_some(invalidation);
        for (player, value) in stage.players.iter_mut().zip(2..) {
            player.write(value);
        }
        drop(invalidation);
    }
    fn after<F: Format>() {
        check::<F>(true);
    }
    // Then the fault is found settled, and neither slot nor host is asked.
    fn meanwhile<F: Format>() {
        check::<F>(false);
    }
    in_formats!(after);
    in_formats!(meanwhile);
}

#[test]
fn two_cpus_that_remember_that_there_is_nothing_find_what_one_of_them_maps() {
    fn check<F: Format>() {
        let mut stage = Stage::<F>::new(Flags::empty());
        let [one, other] = &mut stage.players;
        one.read(0);
        other.read(0);
        let moved = Gpa::new(GPA.get() + PAGE_SIZE);
        // Nobody has memory there, so a read comes out, and is remembered as absent where that may be.
        for player in [one, other] {
            player.cpu.load(vec![Instruction::ReadMmio { gpa: moved, len: 8 }]);
            let exit = player.vcpu.run(&mut player.cpu);
            assert!(matches!(exit, Exit::Mmio(_)), "{exit:?}");
        }
        let [one, other] = &mut stage.players;
        let slot = SlotId::main(1);
        let (backing, flags) = (stage.page, Flags::empty());
        let region = Region { slot, gpa: moved, size: PAGE_SIZE, backing, flags };
        stage.vm.set_memory_region(&region).unwrap();
        one.run(vec![Instruction::Touch { gpa: moved, len: 1, value: 7 }]);
        other.run(vec![Instruction::Verify { gpa: moved, len: 1, value: 7 }]);
    }
    in_formats!(check);
}
