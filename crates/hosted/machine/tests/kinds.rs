//! Memory of other kinds than the usual, under guests that run on TLBs: pages that the host has not executed, and memory
//! that is reached past the caches.

#[path = "common/formats.rs"]
#[macro_use]
mod formats;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use mayfly_machine::cache::{LineCounts, Lines};
use mayfly_machine::scenario::{ForcedFormat, TableFormat};
use mayfly_machine::walk::walk;
use mayfly_machine::{AnyDevice, Cpu, HostMemory, HostSpace, Instruction, Machine, address_space};
use mayfly_memslot::{Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::cache::{CacheCapabilities, InstructionCaches};
use mayfly_platform::frames::Frames;
use mayfly_platform::sync::AtomicU64;
use mayfly_stage2::{self as stage2, Format, Level, MemoryType, Permissions};
use mayfly_vm::{
    Access, AccessKind, Caches, Config, Error, Exit, HostFault, Reason, Resolved, SlotZap, Vcpu,
    Vm, World,
};

const RW: Permissions = Permissions::READ.union(Permissions::WRITE);

/// What the host says of its memory, of which the address space says where it is.
type Say = fn(Hva, Permissions, Resolved) -> Resolved;

/// The host's memory, as somebody sees it who knows its kinds.
struct Kinds {
    space: Arc<HostSpace>,
    say: Mutex<Say>,
}

// SAFETY: frames of the arena, which the space keeps mapped as long as the VM is there; no more rights or pages are said
// than the space says.
unsafe impl mayfly_vm::HostMemory<Hva> for Kinds {
    fn resolve(&self, backing: Hva, wanted: Permissions) -> Result<Resolved, HostFault> {
        let found = self.space.resolve(backing, wanted == Permissions::WRITE);
        let address_space::Resolved { pfn, level, writable } =
            found.map_err(|_| HostFault::NotMapped)?;
        Ok(self.say.lock().unwrap()(backing, wanted, Resolved::memory(pfn, level, writable)))
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.space.arena().linear_map()
    }
}

struct OfKinds<F>(PhantomData<F>);

impl<F: Format> World for OfKinds<F> {
    type Device = AnyDevice;
    type Backing = Hva;
    type Format = F;
    type Memory = Kinds;
}

/// A VM of some pages at 0, backed by `memory`, and another page behind them, which is deleted to have roots made anew.
struct Stage<F: Format> {
    machine: Machine<F>,
    kinds: Arc<Kinds>,
    vm: Vm<OfKinds<F>>,
    memory: HostMemory,
    other: Region<Hva>,
}

/// A vCPU, and its CPU.
struct Player<F: Format> {
    vcpu: Vcpu<OfKinds<F>>,
    cpu: Cpu<F>,
}

impl<F: Format> Stage<F> {
    fn new(
        machine: Machine<F>,
        (size, backing): (u64, address_space::Backing),
        slot_zap: SlotZap,
        caches: Caches,
        say: Say,
    ) -> Self {
        let kinds = Kinds { space: Arc::clone(machine.space()), say: Mutex::new(say) };
        let kinds = Arc::new(kinds);
        let vm = Vm::create(Config {
            srcu: mayfly_srcu::Config {
                worker: Some(Arc::clone(machine.worker().worker())),
                ..Default::default()
            },
            stage2: stage2::Config {
                mmu: machine.hardware().clone(),
                vmids: machine.vmids().clone(),
                reclaimer: Arc::clone(machine.reclaimer()),
                max_frames: usize::MAX,
            },
            memory: Arc::clone(&kinds),
            cache: machine.cache().clone(),
            caches,
            slot_zap,
            slice: stage2::Slice::default(),
        })
        .unwrap();
        let memory = machine.map_backed(size, backing).unwrap();
        vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0))).unwrap();
        let other = machine.map(PAGE_SIZE).unwrap();
        let other = other.region(SlotId::main(1), Gpa::new(1 << 30));
        Self { machine, kinds, vm, memory, other }
    }

    fn player(&self, id: u32) -> Player<F> {
        let mut cpu = self.machine.cpu(Vec::new());
        cpu.turn_caches_off();
        Player { vcpu: self.vm.create_vcpu(id).unwrap(), cpu }
    }

    /// The host says `say` from now on, and takes what it had said of the first page.
    fn say(&self, say: Say) {
        let invalidation = self.vm.invalidate_start(self.memory.hva(), PAGE_SIZE, Reason::Unmap);
        *self.kinds.say.lock().unwrap() = say;
        drop(invalidation);
    }

    /// Has the VM zap for what goes beside the memory.
    fn delete_other(&self) {
        self.vm.set_memory_region(&self.other).unwrap();
        self.vm.set_memory_region(&Region { size: 0, ..self.other }).unwrap();
    }
}

impl<F: Format> Player<F> {
    fn run(&mut self, instruction: Instruction) -> Exit {
        self.cpu.load(vec![instruction]);
        self.vcpu.run(&mut self.cpu)
    }

    fn write(&mut self, page: u64, value: u64) {
        let gpa = Gpa::new(page * PAGE_SIZE);
        assert_eq!(self.run(Instruction::TouchLines { gpa, len: PAGE_SIZE, value }), Exit::Halt);
    }

    /// Whether every line of `page` says `value`.
    fn finds(&mut self, page: u64, value: u64) -> bool {
        let gpa = Gpa::new(page * PAGE_SIZE);
        assert_eq!(self.run(Instruction::VerifyLines { gpa, len: PAGE_SIZE, value }), Exit::Halt);
        self.cpu.mismatches() == 0
    }

    /// What is fetched from `page`; nothing where the host does not allow that.
    fn fetch(&mut self, page: u64) -> Option<u64> {
        match self.run(Instruction::Fetch { gpa: Gpa::new(page * PAGE_SIZE) }) {
            Exit::Halt => Some(self.cpu.last_read()),
            Exit::Failed(
                Access { kind: AccessKind::Fetch, .. },
                Error::Host(HostFault::NotExecutable),
            ) => None,
            exit => panic!("{}: {exit:?}", F::NAME),
        }
    }

    /// The leaf of `page` in the root that it ran on last.
    fn leaf(&self, machine: &Machine<F>, page: u64) -> (Level, MemoryType, Permissions) {
        let (top, _) = self.cpu.named().unwrap();
        let arena = machine.hardware().arena();
        let found = walk::<F>(arena, top, Gpa::new(page * PAGE_SIZE).gfn(), Permissions::READ);
        let found = found.unwrap();
        (found.level, found.leaf.memory, found.leaf.permissions)
    }
}

fn in_pages<F: Format>(slot_zap: SlotZap, say: Say) -> Stage<F> {
    let (machine, pages) = (Machine::with_frames(1 << 10).unwrap(), address_space::Backing::Pages);
    Stage::new(machine, (4 * PAGE_SIZE, pages), slot_zap, Caches::Coherent, say)
}

#[test]
fn what_the_host_has_not_executed_is_not_fetched_whatever_the_tlb_had_of_it() {
    fn check<F: Format>() {
        const DATA: Say = |_, _, usual| Resolved { allowed: RW, ..usual };
        const CODE: Say = |_, _, usual| usual;
        for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
            let stage = in_pages::<F>(slot_zap, DATA);
            let [mut one, mut two] = [0, 1].map(|id| stage.player(id));
            one.write(0, 7);
            assert!(two.finds(0, 7));
            for player in [&mut one, &mut two] {
                assert_eq!(player.fetch(0), None, "the TLB has it to read and write");
                assert_eq!(
                    player.leaf(&stage.machine, 0).2 & Permissions::EXECUTE,
                    Permissions::empty()
                );
            }
            stage.say(CODE);
            assert_eq!([one.fetch(0), two.fetch(0)], [Some(7); 2]);
            stage.say(DATA);
            assert_eq!([one.fetch(0), two.fetch(0)], [None; 2], "the TLB had it to execute");
            stage.delete_other();
            assert_eq!([one.fetch(0), two.fetch(0)], [None; 2]);
            assert!(one.finds(0, 7) && two.finds(0, 7));
        }
    }
    in_formats!(check);
}

#[test]
fn a_block_that_is_not_executable_is_split_under_the_tlbs_that_have_it() {
    const PAGES: u64 = Level::MIB2.pages();
    /// Executable by pages alone, and by blocks not at all.
    const SPLIT: Say = |_, wanted, usual| match wanted {
        Permissions::EXECUTE => Resolved { level: Level::PAGE, ..usual },
        _ => Resolved { allowed: RW, ..usual },
    };
    fn check<F: Format>() {
        let machine = Machine::<F>::with_frames(1 << 12).unwrap();
        let huge = (PAGES * PAGE_SIZE, address_space::Backing::HugePages);
        let stage = Stage::new(machine, huge, SlotZap::Range, Caches::Coherent, SPLIT);
        let [mut one, mut two] = [0, 1].map(|id| stage.player(id));
        one.write(5, 7);
        one.write(6, 8);
        assert!(two.finds(5, 7) && two.finds(6, 8));
        assert_eq!(one.leaf(&stage.machine, 5), (Level::MIB2, MemoryType::WriteBack, RW));
        assert_eq!(two.fetch(5), Some(7));
        let (level, _, rights) = two.leaf(&stage.machine, 5);
        assert_eq!((level, rights.contains(Permissions::EXECUTE)), (Level::PAGE, true));
        assert_eq!(two.leaf(&stage.machine, 6), (Level::PAGE, MemoryType::WriteBack, RW));
        assert_eq!(one.fetch(5), Some(7), "which had the block");
        // What is taken away of it is out of both TLBs, whatever size they had it in.
        let hva = Hva::new(stage.memory.hva().get() + 6 * PAGE_SIZE);
        let invalidation = stage.vm.invalidate_start(hva, PAGE_SIZE, Reason::Unmap);
        *stage.kinds.say.lock().unwrap() =
            |_, _, usual| Resolved { level: Level::PAGE, allowed: Permissions::READ, ..usual };
        drop(invalidation);
        for player in [&mut one, &mut two] {
            assert!(player.finds(6, 8));
            let gpa = Gpa::new(6 * PAGE_SIZE);
            let exit = player.run(Instruction::Touch { gpa, len: 1, value: 9 });
            assert!(matches!(exit, Exit::Failed(_, Error::Host(HostFault::ReadOnly))), "{exit:?}");
        }
    }
    in_formats!(check);
}

/// Lines that were maintained, and whether what either of two guests writes, one with its caches on and one with them
/// off, is what the other finds: at first, after the host has taken the page, and after roots were made anew.
fn shared<F: Format>(slot_zap: SlotZap, memory: MemoryType, say: Say) -> (LineCounts, [bool; 6]) {
    let capabilities = CacheCapabilities { instructions: InstructionCaches::Virtual, fgt: false };
    let machine = Machine::<F>::with_caches(1 << 10, Lines::Modelled, capabilities).unwrap();
    let pages = (4 * PAGE_SIZE, address_space::Backing::Pages);
    let stage = Stage::new(machine, pages, slot_zap, Caches::Tracked, say);
    let [mut on, mut off] = [0, 1].map(|id| stage.player(id));
    assert_eq!(on.run(Instruction::Caches(true)), Exit::Halt);
    let mut found = [false; 6];
    for (round, found) in found.chunks_exact_mut(2).enumerate() {
        match round {
            0 => {}
            1 => stage.say(say),
            _ => stage.delete_other(),
        }
        // Once more, for both have it mapped by then.
        for value in [10, 20] {
            let value = value + 2 * round as u64;
            on.write(0, value);
            found[0] = off.finds(0, value);
            off.write(0, value + 1);
            found[1] = on.finds(0, value + 1);
        }
        for player in [&on, &off] {
            let (level, found, rights) = player.leaf(&stage.machine, 0);
            assert_eq!((level, found), (Level::PAGE, memory), "{}, {slot_zap:?}", F::NAME);
            assert!(memory == MemoryType::WriteBack || rights == RW, "{rights:?}");
        }
    }
    (stage.machine.cache().lines(), found)
}

#[test]
fn memory_past_the_caches_stays_so_on_every_root_and_no_line_of_it_is_maintained() {
    fn check<F: Format>() {
        for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
            let untouched = (LineCounts::default(), [true; 6]);
            let uncached = shared::<F>(slot_zap, MemoryType::Uncached, |_, _, usual| Resolved {
                memory: MemoryType::Uncached,
                allowed: RW,
                ..usual
            });
            assert_eq!(uncached, untouched, "{}, {slot_zap:?}", F::NAME);
            let device = shared::<F>(slot_zap, MemoryType::Device, |_, _, usual| {
                Resolved::device(usual.pfn, usual.level)
            });
            assert_eq!(device, untouched, "{}, {slot_zap:?}", F::NAME);
        }
    }
    check::<TableFormat>();
    check::<ForcedFormat>();
    // Memory of the usual kind is maintained, and all the same what goes past the caches is not seen through them at
    // once.
    for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
        let (lines, found) =
            shared::<TableFormat>(slot_zap, MemoryType::WriteBack, |_, _, usual| usual);
        assert!(lines.cleaned > 0 && lines.flushed > 0, "{lines:?}");
        assert_ne!(found, [true; 6]);
    }
}
