//! TLBs that forget at the addresses that they are told, and of the size that they are told, and no more.

#[path = "common/bounded.rs"]
mod bounded;
#[path = "common/formats.rs"]
#[macro_use]
mod formats;

use mayfly_machine::address_space::Backing;
use mayfly_machine::{Cpu, HostMemory, Instruction, Machine, MachineVcpu, MachineVm};
use mayfly_memslot::{Flags, Gpa, PAGE_SIZE, Region, SlotId};
use mayfly_platform::Op;
use mayfly_stage2::{Format, Level};
use mayfly_vm::Exit;

use bounded::Bounded;

const BLOCK: u64 = Level::MIB2.pages();

/// Where the slot is, in pages: at a multiple of 1 GiB.
const AT: u64 = Level::GIB1.pages();

/// Faults that one access may take: what a TLB keeps may cost one more.
const FAULTS: u32 = 3;

struct Stage<F: Format> {
    machine: Machine<F>,
    vm: MachineVm<F>,
    memory: HostMemory,
    vcpu: MachineVcpu<F>,
    cpu: Cpu<F>,
}

impl<F: Format> Stage<F> {
    /// A slot of so many blocks.
    fn new(blocks: u64) -> Self {
        let machine = Machine::<F>::with_frames(1 << 18).unwrap();
        let vm = machine.create_vm().unwrap();
        let memory = machine.map_backed(blocks * BLOCK * PAGE_SIZE, Backing::HugePages).unwrap();
        let (vcpu, cpu) = (vm.create_vcpu(0).unwrap(), machine.cpu(Vec::new()));
        let stage = Self { machine, vm, memory, vcpu, cpu };
        stage.set(Flags::empty(), stage.memory.size());
        stage
    }

    fn set(&self, flags: Flags, size: u64) {
        let gpa = Gpa::new(AT * PAGE_SIZE);
        let region = Region { flags, size, ..self.memory.region(SlotId::main(0), gpa) };
        self.vm.set_memory_region(&region).unwrap();
    }

    fn run(&mut self, instruction: Instruction) -> Exit {
        self.cpu.load(vec![instruction]);
        let mut guest = Bounded::new(&mut self.cpu, FAULTS + 1);
        let exit = self.vcpu.run(&mut guest);
        assert!(guest.faults() <= FAULTS, "{}: the access is never made", F::NAME);
        exit
    }

    fn write(&mut self, page: u64) {
        let gpa = Gpa::new((AT + page) * PAGE_SIZE);
        assert_eq!(self.run(Instruction::Touch { gpa, len: 1, value: 7 }), Exit::Halt);
    }

    fn write_all(&mut self, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            self.write(page);
        }
    }

    /// Deletes the slot, and asserts that the guest finds none of `pages`. Returns how many invalidations by address
    /// it took.
    fn delete(&mut self, pages: impl IntoIterator<Item = u64>) -> u64 {
        let before = self.machine.hardware().tlbs().counts();
        self.set(Flags::empty(), 0);
        let after = self.machine.hardware().tlbs().counts();
        for page in pages {
            let gpa = Gpa::new((AT + page) * PAGE_SIZE);
            let exit = self.run(Instruction::ReadMmio { gpa, len: 8 });
            assert!(matches!(exit, Exit::Mmio(_)), "{}: page {page}: {exit:?}", F::NAME);
        }
        after.addresses - before.addresses
    }
}

/// Pages that are remembered each by itself.
const PAGES: [u64; 4] = [0, 1, 300, BLOCK - 1];

#[test]
fn a_table_that_is_removed_takes_its_pages_out_of_the_tlb() {
    fn check<F: Format>() {
        let mut stage = Stage::<F>::new(1);
        stage.set(Flags::LOG_DIRTY_PAGES, stage.memory.size());
        stage.write_all(PAGES);
        assert_eq!(stage.delete(PAGES), BLOCK);
    }
    in_formats!(check);
}

#[test]
fn a_collapse_takes_the_pages_out_of_the_tlb() {
    fn check<F: Format>() {
        let mut stage = Stage::<F>::new(1);
        stage.set(Flags::LOG_DIRTY_PAGES, stage.memory.size());
        stage.write_all(PAGES);
        stage.set(Flags::empty(), stage.memory.size());
        // The pages that are remembered are writable, so another one is written.
        let before = stage.machine.hardware().charged(Op::TablesFreed(0));
        stage.write(77);
        assert_eq!(stage.machine.hardware().charged(Op::TablesFreed(0)), before + 1, "collapsed");
        assert_eq!(stage.delete(PAGES), 1, "one block");
    }
    in_formats!(check);
}

#[test]
fn pages_and_blocks_that_go_together_all_go() {
    fn check<F: Format>() {
        let mut stage = Stage::<F>::new(2);
        stage.set(Flags::LOG_DIRTY_PAGES, stage.memory.size());
        stage.write_all(PAGES);
        stage.set(Flags::empty(), stage.memory.size());
        stage.write(BLOCK + 5);
        stage.delete(PAGES.into_iter().chain([BLOCK, 2 * BLOCK - 1]));
    }
    in_formats!(check);
}

#[test]
fn a_slot_of_128_blocks_takes_128_invalidations_by_address() {
    fn check<F: Format>() {
        let mut stage = Stage::<F>::new(128);
        let pages = || (0..128).map(|block| block * BLOCK + block);
        stage.write_all(pages());
        assert_eq!(stage.delete(pages()), 128);
    }
    in_formats!(check);
}
