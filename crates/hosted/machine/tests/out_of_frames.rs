//! Every frame that a VM's life asks for is refused in turn: whoever asked says so, everything else goes on, and in the
//! end every frame is back.

use std::cell::Cell;

use mayfly_machine::address_space::{self, Backing};
use mayfly_machine::{Cpu, HostMemory, Instruction, Machine, MachineVcpu, Program, VmOptions};
use mayfly_memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::memory::OutOfMemory;
use mayfly_stage2::{Arm, Ept, Format, Sv39x4};
use mayfly_vm::{Exit, SlotZap, Vm};

/// Which frames are refused, and what is done about it.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// This one alone. What was refused is done again.
    Only(u64),
    /// This one, and all that are asked for until somebody says that he was refused. Then it is done again.
    From(u64),
    /// This one and all that follow. Nothing is done any more but to destroy the VM.
    Last(u64),
}

/// No frame: ENOMEM.
#[derive(Debug)]
struct Refused;

impl From<mayfly_vm::Error> for Refused {
    fn from(error: mayfly_vm::Error) -> Self {
        assert_eq!(error.errno(), 12, "{error}");
        Self
    }
}

impl From<address_space::Error> for Refused {
    fn from(error: address_space::Error) -> Self {
        assert_eq!(error, address_space::Error::OutOfMemory(OutOfMemory));
        Self
    }
}

impl From<OutOfMemory> for Refused {
    fn from(_: OutOfMemory) -> Self {
        Self
    }
}

/// A machine whose frames are refused.
struct Refusing<F: Format> {
    machine: Machine<F>,
    refusal: Refusal,
    refused: Cell<u64>,
}

impl<F: Format> Refusing<F> {
    fn new(refusal: Refusal) -> Self {
        let machine = Machine::with_frames(1 << 12).unwrap();
        let numbers = match refusal {
            Refusal::Only(number) => number..number + 1,
            Refusal::From(number) | Refusal::Last(number) => number..u64::MAX,
        };
        machine.hardware().arena().fail_allocations(numbers);
        Self { machine, refusal, refused: Cell::new(0) }
    }

    /// Does `step`, and again if it was refused.
    fn attempt<T>(&self, mut step: impl FnMut() -> Result<T, Refused>) -> Result<T, Refused> {
        loop {
            let done = step();
            if done.is_ok() || matches!(self.refusal, Refusal::Last(_)) {
                return done;
            }
            self.refused.set(self.refused.get() + 1);
            assert_eq!(self.refused.get(), 1, "{:?} is refused again", self.refusal);
            if let Refusal::From(_) = self.refusal {
                self.machine.hardware().arena().fail_allocations(0..0);
            }
        }
    }

    fn run(&self, vcpu: &mut MachineVcpu<F>, program: Program) -> Result<(), Refused> {
        let mut cpu: Cpu<F> = self.machine.cpu(program);
        self.attempt(|| match vcpu.run(&mut cpu) {
            Exit::Halt => Ok(()),
            Exit::Failed(_, error) => Err(error.into()),
            exit => panic!("the programs give no cause for {exit:?}"),
        })?;
        assert_eq!(cpu.mismatches(), 0, "{:?}: memory is not what it should be", self.refusal);
        Ok(())
    }
}

fn region(number: u16, gpa: u64, memory: &HostMemory) -> Region<Hva> {
    memory.region(SlotId::main(number), Gpa::new(gpa))
}

/// Memory in pages and in blocks, written, swapped out, migrated, logged (which takes blocks apart), moved and deleted.
fn live<F: Format>(
    on: &Refusing<F>,
    vm: &Vm<mayfly_machine::MachineWorld<F>>,
) -> Result<(), Refused> {
    const PAGES: u64 = 8 * PAGE_SIZE;
    const GIB: u64 = 1 << 30;
    let pages = on.attempt(|| Ok(on.machine.map(PAGES)?))?;
    let block = on.attempt(|| Ok(on.machine.map_backed(1 << 21, Backing::Contiguous)?))?;
    let (small, large) = (region(0, GIB, &pages), region(1, 2 * GIB, &block));
    let set = |region| on.attempt(|| Ok(vm.set_memory_region(&region)?));
    set(small)?;
    set(large)?;
    let mut vcpu = on.attempt(|| Ok(vm.create_vcpu(0)?))?;
    let touch = |gpa: Gpa, len, value| Instruction::Touch { gpa, len, value };
    let verify = |gpa: Gpa, len, value| Instruction::Verify { gpa, len, value };
    on.run(&mut vcpu, vec![touch(small.gpa, PAGES, 1), touch(large.gpa, 2 * PAGES, 2)])?;
    for page in [0, 3] {
        assert!(on.machine.space().reclaim(Hva::new(pages.hva().get() + page * PAGE_SIZE)));
    }
    let migrated = Hva::new(pages.hva().get() + 5 * PAGE_SIZE);
    assert!(on.attempt(|| Ok(on.machine.space().migrate(migrated)?))?);
    on.run(&mut vcpu, vec![verify(small.gpa, PAGES, 1), verify(large.gpa, 2 * PAGES, 2)])?;
    let logged = Region { flags: Flags::LOG_DIRTY_PAGES, ..large };
    set(logged)?;
    on.run(&mut vcpu, vec![touch(large.gpa, PAGES, 3), verify(large.gpa, PAGES, 3)])?;
    let mut marks = [0; 8];
    assert_eq!(vm.harvest_dirty(logged.slot, 0, &mut marks).map_err(Refused::from)?, 8);
    let moved = Region { gpa: Gpa::new(3 * GIB), ..small };
    set(moved)?;
    on.run(&mut vcpu, vec![verify(moved.gpa, PAGES, 1)])?;
    set(Region { size: 0, ..moved })?;
    on.run(
        &mut vcpu,
        vec![verify(large.gpa, PAGES, 3), verify(Gpa::new(large.gpa.get() + PAGES), PAGES, 2)],
    )
}

/// Returns whether somebody was refused.
fn refuse<F: Format>(slot_zap: SlotZap, refusal: Refusal) -> bool {
    let on = Refusing::<F>::new(refusal);
    let vm = on.machine.create_vm_with(VmOptions { slot_zap, ..VmOptions::default() }).unwrap();
    let lived = live(&on, &vm);
    assert!(lived.is_ok() || matches!(refusal, Refusal::Last(_)), "{refusal:?}");
    let handle = Vm::clone(&vm);
    vm.destroy();
    handle.wait_reclaimed();
    let left = (handle.stage2().frames(), on.machine.hardware().arena().in_use());
    assert_eq!(left, (0, 0), "{refusal:?}: frames are lost");
    assert_eq!(on.machine.space().swapped(), 0);
    on.refused.get() > 0 || lived.is_err()
}

/// Refuses frame after frame, until there is none that anybody misses. (A slot whose zap is refused fresh roots does
/// without; that is not the end yet.)
fn refuse_in_turn<F: Format>(slot_zap: SlotZap, refusal: fn(u64) -> Refusal) {
    let (mut missed, mut not_missed) = (0, 0);
    for number in 0.. {
        if refuse::<F>(slot_zap, refusal(number)) {
            (missed, not_missed) = (missed + 1, 0);
        } else {
            not_missed += 1;
        }
        if not_missed == 8 {
            break;
        }
    }
    // The root, tables for two slots, eight pages, a block, pages that come back, the tables of a block.
    assert!(missed >= 20, "only {missed} frames were missed");
}

#[test]
fn a_frame_that_is_refused_is_an_error_and_all_is_well_when_it_is_there_the_next_time() {
    refuse_in_turn::<Ept>(SlotZap::Range, Refusal::Only);
    refuse_in_turn::<Arm<48>>(SlotZap::AllRoots, Refusal::Only);
    refuse_in_turn::<Sv39x4>(SlotZap::AllRoots, Refusal::Only);
}

#[test]
fn so_it_is_with_all_frames_from_then_on_until_there_are_some_again() {
    refuse_in_turn::<Ept>(SlotZap::AllRoots, Refusal::From);
    refuse_in_turn::<Arm<48>>(SlotZap::Range, Refusal::From);
}

#[test]
fn a_vm_that_gets_no_frame_any_more_is_destroyed_without_any() {
    refuse_in_turn::<Ept>(SlotZap::Range, Refusal::Last);
    refuse_in_turn::<Arm<48>>(SlotZap::AllRoots, Refusal::Last);
}
