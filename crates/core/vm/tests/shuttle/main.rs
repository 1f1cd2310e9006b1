//! Guests that turn their caches on and off, under shuttle, in schedules drawn at random and by probabilistic
//! concurrency testing (PCT): real VMs and vCPUs, on CPUs with TLBs, before memory and caches that say different things
//! wherever they may.
//!
//! A guest that reads anything but what it wrote itself last, its caches on or off by then, fails the model, and so
//! does one that reads what it was not given. A thread that is never woken is a deadlock, which shuttle reports.

#![cfg(mayfly_shuttle)]

#[path = "../../../stage2/tests/shuttle/cpus.rs"]
#[allow(dead_code)]
mod cpus;
mod guest;
mod memory;
#[path = "../../../stage2/tests/model/mod.rs"]
#[allow(dead_code)]
mod model;
mod pairs;

use std::marker::PhantomData;
use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

use mayfly_memslot::{DirtyWord, Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::address::Pfn;
use mayfly_platform::check_schedules;
use mayfly_stage2::{Announcement, Invalidation};
use mayfly_vm::{
    CacheCapabilities, CacheOp, Caches, Change, Config, Device, Exit, InstructionCaches,
    PageChange, Protection, Reason, SlotZap, Vm, World,
};

use cpus::Cpus;
use guest::{Guest, Step};
use memory::Memory;
use model::{Tiny, WHOLE};

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_schedules(3_000, 1_000, model);
}

/// Frames for tables: more than any model takes.
const FRAMES: usize = 400;
/// Pages of the guest's memory: two blocks.
const PAGES: u64 = 8;

struct NoDevice;

impl Device for NoDevice {
    fn read(&self, _: u32, _: u64, _: &mut [u8]) {
        unreachable!("no device is registered");
    }

    fn write(&self, _: u32, _: u64, _: &[u8]) {
        unreachable!("no device is registered");
    }
}

struct Kinds<const BREAK: bool>(PhantomData<()>);

impl<const BREAK: bool> World for Kinds<BREAK> {
    type Device = NoDevice;
    type Backing = Hva;
    type Format = Tiny<BREAK>;
    type Memory = Memory;
}

/// One VM, and what it lives in.
struct Machine<const BREAK: bool> {
    /// Frames, TLBs, VMIDs.
    below: model::Vm<Tiny<BREAK>, Cpus>,
    memory: Arc<Memory>,
    vm: Vm<Kinds<BREAK>>,
    threads: Vec<JoinHandle<()>>,
    cpus: u32,
}

impl<const BREAK: bool> Machine<BREAK> {
    fn new(cpus: usize, fgt: bool, slot_zap: SlotZap) -> Self {
        let below = model::Vm::new(FRAMES, Cpus::new(cpus));
        let capabilities = CacheCapabilities { instructions: InstructionCaches::Coherent, fgt };
        let memory = Arc::new(Memory::new(capabilities, below.config.mmu.clone()));
        let vm = Vm::create(Config {
            srcu: mayfly_srcu::Config::default(),
            stage2: below.config.clone(),
            memory: memory.clone(),
            cache: memory.clone(),
            caches: Caches::Tracked,
            slot_zap,
            slice: WHOLE,
        })
        .unwrap();
        vm.set_memory_region(&slot(0, 0, PAGES)).unwrap();
        Self { below, memory, vm, threads: Vec::new(), cpus: 0 }
    }

    /// A guest on a CPU of its own, which goes through `steps`.
    fn guest(&mut self, steps: Vec<Step>) {
        let (id, world) = (self.cpus, self.below.world.clone());
        self.cpus += 1;
        let mut vcpu = self.vm.create_vcpu(id).unwrap();
        let mut guest = Guest::<BREAK>::new(id as usize, world, self.memory.clone(), steps);
        self.threads.push(thread::spawn(move || assert_eq!(vcpu.run(&mut guest), Exit::Halt)));
    }

    /// As [`Machine::guest`]; it goes on where there is no memory, and ends with its VM.
    fn guest_that_may_end(&mut self, steps: Vec<Step>) {
        let (id, world) = (self.cpus, self.below.world.clone());
        self.cpus += 1;
        let mut vcpu = self.vm.create_vcpu(id).unwrap();
        let mut guest = Guest::<BREAK>::new(id as usize, world, self.memory.clone(), steps);
        let life = move || loop {
            match vcpu.run(&mut guest) {
                Exit::Mmio(_) => guest.skip(),
                Exit::Halt | Exit::Kicked => return,
                other => panic!("{other:?}"),
            }
        };
        self.threads.push(thread::spawn(life));
    }

    fn spawn(&mut self, life: impl FnOnce(&Vm<Kinds<BREAK>>, &Memory) + Send + 'static) {
        let (vm, memory) = (self.vm.clone(), self.memory.clone());
        self.threads.push(thread::spawn(move || life(&vm, &memory)));
    }

    fn join(&mut self) {
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }

    /// All that was given is given back.
    fn end(mut self) {
        self.join();
        self.memory.break_by(None);
        self.vm.clone().destroy();
        self.vm.wait_reclaimed();
        drop(self.vm);
        self.below.end();
    }
}

fn slot(index: u16, gfn: u64, pages: u64) -> Region<Hva> {
    Region {
        slot: SlotId::main(index),
        flags: Flags::empty(),
        gpa: Gpa::new(gfn * PAGE_SIZE),
        size: pages * PAGE_SIZE,
        backing: Hva::new(gfn * PAGE_SIZE),
    }
}

/// The host moves some page to another frame, as when it compacts memory: by a copy through its caches.
fn migrate<const BREAK: bool>(vm: &Vm<Kinds<BREAK>>, memory: &Memory) {
    let page = thread_rng().gen_range(0..4);
    let invalidation = vm.invalidate_start(Hva::new(page * PAGE_SIZE), PAGE_SIZE, Reason::Migrate);
    memory.migrate(page);
    drop(invalidation);
}

fn about_to<const BREAK: bool>(
    vm: &Vm<Kinds<BREAK>>,
    page: u64,
    reason: Reason,
    old: Protection,
) -> Invalidation<'_> {
    let change = Change { reason, old, new: Protection::ReadOnly };
    vm.invalidate_start(Hva::new(page * PAGE_SIZE), PAGE_SIZE, change)
}

fn is_in<const BREAK: bool>(
    vm: &Vm<Kinds<BREAK>>,
    announcement: &Announcement,
    page: u64,
    (old, new): (u64, u64),
    protection: Protection,
) {
    let (old, new) = (Pfn::new(old), Pfn::new(new));
    let change = PageChange { old, new, protection, same_contents: true };
    // SAFETY: frames of this model are places in an array of atomics.
    unsafe { vm.change_pte(announcement, Hva::new(page * PAGE_SIZE), &change) };
}

/// The host merges some page with one that is in a frame of the same contents.
fn merge<const BREAK: bool>(vm: &Vm<Kinds<BREAK>>, memory: &Memory) {
    let page = [0, 1, 4, 5][thread_rng().gen_range(0..4)];
    let _sharing = memory.sharing();
    if memory.is_shared(page) {
        return;
    }
    let invalidation = about_to(vm, page, Reason::Merge, Protection::ReadWrite);
    let frames = memory.set_shared(page, true);
    is_in(vm, &invalidation, page, frames, Protection::ReadOnly);
    memory.withdraw(frames.0);
}

/// The host gives a page that is shared a frame of its own, while a vCPU asks for it.
fn unshare<const BREAK: bool>(vm: &Vm<Kinds<BREAK>>, memory: &Memory, page: u64) {
    let invalidation = about_to(vm, page, Reason::CopyOnWrite, Protection::ReadOnly);
    let frames = memory.set_shared(page, false);
    is_in(vm, &invalidation, page, frames, Protection::ReadWrite);
    memory.withdraw(frames.0);
}

/// As [`unshare`], by one call.
fn copy_on_write<const BREAK: bool>(vm: &Vm<Kinds<BREAK>>, memory: &Memory, page: u64) {
    let frames = memory.frames(page);
    let [old, new] = frames.map(Pfn::new);
    let (copy, found) = (|| memory.copy_shared(frames), || memory.is_in_copy(page, frames));
    // SAFETY: frames of this model are places in an array of atomics.
    unsafe { vm.copy_on_write(Hva::new(page * PAGE_SIZE), old, new, copy, found) };
}

fn read_as_it_is_copied<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::new(2, true, SlotZap::Range);
    machine.memory.set_shared(0, true);
    let vm = machine.vm.clone();
    let breaks = move |memory: &Memory, page| copy_on_write(&vm, memory, page);
    machine.memory.break_by(Some(Box::new(breaks)));
    machine.guest(vec![Step::Look(0), Step::Look(0)]);
    machine.guest(vec![Step::Write(0, 1), Step::Read(0, 1)]);
    machine.end();
}

#[test]
fn a_page_that_another_vcpu_is_about_to_map_is_copied_and_its_old_frame_is_not_used_again() {
    // One switch at the right moment is all it takes: short lives, and many.
    check_schedules(500, 6_000, read_as_it_is_copied::<false>);
}

fn two_at_once<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::new(3, true, SlotZap::Range);
    machine.guest(vec![Step::Write(0, 7), Step::Write(5, 7)]);
    machine.join();
    for _ in 0..2 {
        machine.guest(vec![Step::Caches(CacheOp::On), Step::Read(0, 7), Step::Read(5, 7)]);
    }
    machine.end();
}

#[test]
fn two_that_turn_their_caches_on_at_once_both_see_what_was_written_before() {
    check(two_at_once::<false>);
    check(two_at_once::<true>);
}

fn on_and_first_write<const BREAK: bool>() {
    let mut machine = Machine::<BREAK>::new(4, true, SlotZap::Range);
    machine.guest(vec![Step::Write(0, 1)]);
    machine.join();
    machine.guest(vec![Step::Caches(CacheOp::On), Step::ReadAtLeast(0, 1)]);
    machine.guest(vec![Step::Write(0, 2), Step::Caches(CacheOp::On), Step::Read(0, 2)]);
    machine.join();
    machine.guest(vec![Step::Caches(CacheOp::On), Step::Read(0, 2)]);
    machine.end();
}

#[test]
fn a_first_write_while_another_turns_its_caches_on_is_not_lost() {
    check(on_and_first_write::<false>);
    check(on_and_first_write::<true>);
}

/// What a guest does to pages of its own, one in each block, while it looks at everybody's.
fn life(own: [u64; 2], watched: bool) -> Vec<Step> {
    let mut random = thread_rng();
    let (mut steps, mut written) = (Vec::new(), [0; 2]);
    let mut value = 0;
    let mut on = false;
    for _ in 0..12 {
        let which = random.gen_range(0..2);
        match random.gen_range(0..8) {
            0..3 => {
                value += 1;
                written[which] = value;
                steps.push(Step::Write(own[which], value));
            }
            3..5 => steps.push(Step::Read(own[which], written[which])),
            5 => steps.push(Step::Look(random.gen_range(0..PAGES))),
            _ => {
                if on && watched {
                    steps.push(Step::Caches(CacheOp::SetWay));
                }
                on = !on;
                steps.push(Step::Caches(if on { CacheOp::On } else { CacheOp::Off }));
                steps.push(Step::Read(own[which], written[which]));
            }
        }
    }
    steps
}

fn own_writes<const BREAK: bool>(slot_zap: SlotZap) {
    let fgt = thread_rng().gen_bool(0.5);
    let mut machine = Machine::<BREAK>::new(2, fgt, slot_zap);
    for id in 0..2 {
        machine.guest(life([id, 4 + id], !fgt));
    }
    machine.spawn(move |vm, memory| {
        for _ in 0..3 {
            if slot_zap == SlotZap::AllRoots && thread_rng().gen_bool(0.5) {
                let other = slot(1, 8, 4);
                vm.set_memory_region(&other).unwrap();
                vm.set_memory_region(&Region { size: 0, ..other }).unwrap();
            } else {
                migrate(vm, memory);
            }
        }
    });
    machine.end();
}

#[test]
fn a_guest_reads_what_it_wrote_whatever_it_and_the_host_do_to_caches_and_pages() {
    check(|| own_writes::<false>(SlotZap::Range));
    check(|| own_writes::<true>(SlotZap::Range));
}

fn shared_writes<const BREAK: bool>(breaks: fn(&Vm<Kinds<BREAK>>, &Memory, u64)) {
    let fgt = thread_rng().gen_bool(0.5);
    let slot_zap = [SlotZap::Range, SlotZap::AllRoots][thread_rng().gen_range(0..2)];
    let mut machine = Machine::<BREAK>::new(2, fgt, slot_zap);
    let vm = machine.vm.clone();
    machine.memory.break_by(Some(Box::new(move |memory, page| breaks(&vm, memory, page))));
    for id in 0..2 {
        machine.guest(life([id, 4 + id], !fgt));
    }
    machine.spawn(|vm, memory| (0..3).for_each(|_| merge(vm, memory)));
    machine.spawn(|vm, _| {
        let other = slot(1, 8, 4);
        vm.set_memory_region(&other).unwrap();
        vm.set_memory_region(&Region { size: 0, ..other }).unwrap();
    });
    machine.end();
}

#[test]
fn so_it_does_when_its_pages_are_merged_and_broken_in_place() {
    check(|| shared_writes::<false>(unshare));
    check(|| shared_writes::<true>(unshare));
}

#[test]
fn so_it_does_when_its_pages_are_merged_and_copied_on_write_by_one_call() {
    check(|| shared_writes::<false>(copy_on_write));
    check(|| shared_writes::<true>(copy_on_write));
}

#[test]
fn so_it_does_when_all_roots_are_replaced() {
    check(|| own_writes::<false>(SlotZap::AllRoots));
}
