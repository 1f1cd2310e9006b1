//! More guest memory than there are frames, used by several vCPUs at once, while a VMM swaps out what it must.

#[path = "soak/crew.rs"]
mod crew;
#[path = "storm/random.rs"]
mod random;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::yield_now;

use mayfly_machine::{HostMemory, Instruction, Machine, MachineVm, Program, VmOptions};
use mayfly_memslot::{Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_stage2::{Arm, Ept, Format};
use mayfly_vm::{Exit, SlotZap, Vm};

use crew::{Crew, Seat};
use random::Random;

const VCPUS: u32 = 3;
/// What each vCPU goes through.
const PAGES: u64 = 200;
/// How often it does.
const TIMES: u64 = 100;
/// Together they have 600 pages.
const FRAMES: usize = 250;
/// What is swapped out when a frame was missing.
const BATCH: u64 = 24;

const MEMORY: Gpa = Gpa::new(0);
/// A slot that nobody uses. Deleting it makes every root, and every table, be made anew.
const OTHER: Gpa = Gpa::new(1 << 30);

/// What the threads share.
struct Load<F: Format> {
    machine: Machine<F>,
    vm: MachineVm<F>,
    memory: HostMemory,
    running: AtomicU32,
    /// How often a guest's access was refused for want of a frame.
    refused: AtomicU64,
    /// How often something else of the VMM's was.
    refused_host: AtomicU64,
}

fn region(number: u16, gpa: Gpa, memory: &HostMemory) -> Region<Hva> {
    memory.region(SlotId::main(number), gpa)
}

/// Writes and reads `TIMES` times.
fn use_memory<F: Format>(load: &Load<F>, id: u32, seat: &Seat) {
    let len = PAGES * PAGE_SIZE;
    let gpa = Gpa::new(MEMORY.get() + u64::from(id) * len);
    seat.at("creating a vCPU");
    let mut vcpu = loop {
        match load.vm.create_vcpu(id) {
            Ok(vcpu) => break vcpu,
            Err(error) => assert_eq!(error.errno(), 12, "{error}"),
        }
    };
    let mut cpu = load.machine.cpu(Program::new());
    for time in 1..=TIMES {
        let value = u64::from(id) << 32 | time;
        let program =
            [Instruction::Touch { gpa, len, value }, Instruction::Verify { gpa, len, value }];
        cpu.load(program.into());
        loop {
            seat.at("running a vCPU");
            match vcpu.run(&mut cpu) {
                Exit::Halt => break,
                Exit::Failed(_, error) => {
                    assert_eq!(error.errno(), 12, "{error}");
                    load.refused.fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
                exit => panic!("the programs give no cause for {exit:?}"),
            }
        }
        assert_eq!((cpu.reads(), cpu.mismatches()), (PAGES, 0));
    }
}

/// Makes room whenever a guest was refused, and changes slots, with frames for it or without, until all are done.
fn make_room<F: Format>(load: &Load<F>, random: &mut Random, seat: &Seat) {
    let other = load.machine.map(PAGE_SIZE).unwrap();
    let mut is_there = false;
    let mut seen = 0;
    while load.running.load(Ordering::Acquire) > 0 {
        let refused = load.refused.load(Ordering::Relaxed);
        if refused == seen {
            yield_now();
            continue;
        }
        seen = refused;
        seat.at("creating a VM");
        let created = load.machine.create_vm().and_then(|vm| vm.create_vcpu(0).map(drop));
        load.refused_host.fetch_add(u64::from(created.is_err()), Ordering::Relaxed);
        if random.once_in(4) {
            seat.at("changing a slot");
            let other = region(1, OTHER, &other);
            let size = if is_there { 0 } else { other.size };
            load.vm.set_memory_region(&Region { size, ..other }).unwrap();
            is_there = !is_there;
        }
        seat.at("migrating");
        let migrated = load.machine.space().migrate(some_page(load, random));
        load.refused_host.fetch_add(u64::from(migrated.is_err()), Ordering::Relaxed);
        seat.at("swapping out");
        for _ in 0..BATCH {
            load.machine.space().reclaim(some_page(load, random));
        }
    }
}

fn some_page<F: Format>(load: &Load<F>, random: &mut Random) -> Hva {
    let page = random.below(PAGES * u64::from(VCPUS));
    Hva::new(load.memory.hva().get() + page * PAGE_SIZE)
}

fn run<F: Format>(slot_zap: SlotZap) {
    let mut random = Random::seeded();
    let machine = Machine::<F>::with_frames(FRAMES).unwrap();
    let vm = machine.create_vm_with(VmOptions { slot_zap, ..VmOptions::default() }).unwrap();
    let memory = machine.map(u64::from(VCPUS) * PAGES * PAGE_SIZE).unwrap();
    vm.set_memory_region(&region(0, MEMORY, &memory)).unwrap();
    let (running, refused, refused_host) =
        (AtomicU32::new(VCPUS), AtomicU64::new(0), AtomicU64::new(0));
    let load = Arc::new(Load { machine, vm, memory, running, refused, refused_host });

    let mut crew = Crew::default();
    for id in 0..VCPUS {
        let load = Arc::clone(&load);
        crew.start(format!("vCPU {id}"), move |seat| {
            let _done = Done(&load.running);
            use_memory(&load, id, seat);
        });
    }
    let (theirs, mut choices) = (Arc::clone(&load), random.fork());
    crew.start("VMM".into(), move |seat| make_room(&theirs, &mut choices, seat));
    crew.join();

    let load = Arc::into_inner(load).expect("the threads are gone");
    println!(
        "{}, {slot_zap:?}: guests refused {:?}, host {:?}",
        F::NAME,
        load.refused,
        load.refused_host
    );
    assert!(load.refused.into_inner() >= 100, "there were frames enough");
    let mut last = Crew::default();
    let (machine, vm, memory) = (load.machine, load.vm, load.memory);
    last.start("end".into(), move |seat| {
        let handle = Vm::clone(&vm);
        seat.at("destroying the VM");
        vm.destroy();
        handle.wait_reclaimed();
        drop((handle, memory));
        seat.at("waiting for all frames");
        while machine.reclaimer().frames() > 0 {
            yield_now();
        }
        assert_eq!((machine.hardware().arena().in_use(), machine.space().swapped()), (0, 0));
    });
    last.join();
}

/// Says that a vCPU is done, or has panicked.
struct Done<'a>(&'a AtomicU32);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[test]
fn guests_that_find_no_frame_go_on_when_there_is_one() {
    run::<Ept>(SlotZap::AllRoots);
    run::<Arm<48>>(SlotZap::Range);
}
