//! Code of the user's that runs within a call, or while guests run: what it may do, it may do there, and guests reach
//! nothing that is not theirs. No program here has `unsafe` code, but for one whose host has blocks.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use mayfly_platform::sync::AtomicU64;
use mayfly_platform::testing::threads::{Over, ends};
use mayfly_vm::iobus::{self, IoRange};
use mayfly_vm::memslot::{Flags, Gfn, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_vm::srcu::Callback;
use mayfly_vm::stage2::{Ept, Level, Permissions, Reclaimed, Reclaimer, Slice, Tables};
use mayfly_vm::testing::{Machine, Memory, Step};
use mayfly_vm::{
    Bus, Config, Device, Exit, HostFault, HostMemory, Reason, Resolved, SlotZap, Vm, World,
};

/// A device whose drop is `then`.
struct Dropped<F: FnMut()>(F);

impl<F: FnMut() + Send + Sync> Device for Dropped<F> {
    fn read(&self, _vcpu: u32, _offset: u64, _data: &mut [u8]) {}
    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {}
}

impl<F: FnMut()> Drop for Dropped<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

const HERE: IoRange = IoRange { start: 0x1000, len: 8 };
const DOORBELL: IoRange = IoRange { start: 0x2000, len: 8 };

fn nothing() -> Arc<dyn Device> {
    Arc::new(Dropped(|| {}))
}

fn page_at(gpa: u64, pages: u64, backing: Hva) -> Region<Hva> {
    let (slot, flags) = (SlotId::main(0), Flags::empty());
    Region { slot, flags, gpa: Gpa::new(gpa), size: pages * PAGE_SIZE, backing }
}

#[test]
fn what_a_vm_that_is_gone_has_deferred_may_reclaim() {
    ends(|| {
        let machine = Arc::new(Machine::new(64));
        let vm = Vm::create(machine.config()).unwrap();
        let vcpu = vm.create_vcpu(0).unwrap();
        let (its, has_run) = (Arc::clone(&machine), Arc::new(AtomicBool::new(false)));
        let ran = Arc::clone(&has_run);
        let callback = Callback::try_new(move || {
            its.reclaim();
            ran.store(true, Ordering::Relaxed);
        });
        vm.srcu().call(callback.unwrap());
        vm.destroy();
        drop(vcpu);
        assert!(machine.reclaim());
        assert!(has_run.load(Ordering::Relaxed));
    });
}

#[test]
fn a_device_of_a_vm_that_is_gone_may_end_a_vm_of_its_own() {
    ends(|| {
        let machine = Machine::new(64);
        let nested = Vm::create(machine.config()).unwrap();
        drop(nested.create_vcpu(0).unwrap());
        let vm = Vm::create(machine.config()).unwrap();
        let vcpu = vm.create_vcpu(0).unwrap();
        let is_gone = Arc::new(AtomicBool::new(false));
        let gone = Arc::clone(&is_gone);
        let device = Dropped(move || {
            nested.clone().destroy();
            nested.wait_reclaimed();
            gone.store(true, Ordering::Relaxed);
        });
        vm.register_device(Bus::Mmio, HERE, Arc::new(device)).unwrap();
        vm.bus(Bus::Mmio).remove(HERE).unwrap().defer();
        vm.destroy();
        drop(vcpu);
        assert!(machine.reclaim());
        assert!(is_gone.load(Ordering::Relaxed));
    });
}

/// A change of slots helps the reclaimer that is past its bound, with the lock of the slots held.
#[test]
fn what_a_vm_that_is_gone_has_deferred_may_change_the_slots_of_one_that_helps() {
    ends(|| {
        let machine = Machine::new(512);
        let process = machine.process().clone();
        let reclaimer = Arc::new(Reclaimer::new(process, 0));
        let config = || {
            let mut config = machine.config();
            config.stage2.reclaimer = Arc::clone(&reclaimer);
            Config { slot_zap: SlotZap::AllRoots, ..config }
        };
        let helps = Vm::create(config()).unwrap();
        let mut vcpu = helps.create_vcpu(0).unwrap();
        let backing = machine.memory().allocate(2).unwrap();
        let region = page_at(0, 1, backing);
        helps.set_memory_region(&region).unwrap();
        assert_eq!(vcpu.run(&mut machine.guest([Step::Store(0, 1)])), Exit::Halt);

        let gone = Vm::create(config()).unwrap();
        let its_vcpu = gone.create_vcpu(0).unwrap();
        let (its, has_run) = (helps.clone(), Arc::new(AtomicBool::new(false)));
        let ran = Arc::clone(&has_run);
        let other = Region { slot: SlotId::main(1), ..page_at(1 << 20, 1, backing) };
        let callback = Callback::try_new(move || {
            its.set_memory_region(&other).unwrap();
            ran.store(true, Ordering::Relaxed);
        });
        let domain = gone.srcu().clone();
        domain.call(callback.unwrap());
        // Its root is not freed before the other VM helps.
        let section = domain.read_lock();
        gone.destroy();
        drop(its_vcpu);
        drop(section);
        drop(domain);

        helps.set_memory_region(&Region { size: 0, ..region }).unwrap();
        while reclaimer.run_slice(Slice::default()) == Reclaimed::More {}
        assert!(has_run.load(Ordering::Relaxed));
    });
}

#[test]
fn a_device_that_an_edit_refuses_may_use_the_bus_when_it_is_dropped() {
    ends(|| {
        let machine = Machine::new(64);
        let vm = Vm::create(machine.config()).unwrap();
        for range in [HERE, DOORBELL] {
            vm.register_device(Bus::Mmio, range, nothing()).unwrap();
        }
        let its = vm.clone();
        let device = Dropped(move || {
            its.unregister_device(Bus::Mmio, DOORBELL).unwrap();
        });
        let edited = vm.bus(Bus::Mmio).edit(|edit| {
            edit.insert(HERE, Arc::new(device))?;
            Ok::<_, iobus::Error>(())
        });
        assert!(matches!(edited, Err(iobus::Error::Overlap { .. })));
        vm.register_device(Bus::Mmio, DOORBELL, nothing()).unwrap();
    });
}

struct InBlocks;

impl World for InBlocks {
    type Device = Arc<dyn Device>;
    type Backing = Hva;
    type Format = Ept;
    type Memory = Blocks;
}

/// Memory of which each two megabytes lie side by side.
struct Blocks(Arc<Memory>);

// SAFETY: what it gives was allocated by 512 pages, at a multiple of as many.
unsafe impl HostMemory<Hva> for Blocks {
    fn resolve(&self, backing: Hva, wanted: Permissions) -> Result<Resolved, HostFault> {
        Ok(Resolved { level: Level::MIB2, ..self.0.resolve(backing, wanted)? })
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.0.linear_map()
    }
}

#[test]
fn pages_that_the_caller_itself_is_taking_away_are_not_collapsed_and_not_waited_for() {
    ends(|| {
        let machine = Machine::new(2048);
        let Config { srcu, stage2, memory, cache, caches, slot_zap, slice } = machine.config();
        let memory = Arc::new(Blocks(memory));
        let config: Config<InBlocks> =
            Config { srcu, stage2, memory, cache, caches, slot_zap, slice };
        let vm = Vm::create(config).unwrap();
        let backing = machine.memory().allocate(512).unwrap();
        let region = page_at(0, 512, backing);
        vm.set_memory_region(&Region { flags: Flags::LOG_DIRTY_PAGES, ..region }).unwrap();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        assert_eq!(vcpu.run(&mut machine.guest([Step::Store(0, 1)])), Exit::Halt);
        vm.set_memory_region(&region).unwrap();
        let other = Hva::new(backing.get() + 5 * PAGE_SIZE);
        let taken = vm.invalidate_start(other, PAGE_SIZE, Reason::Unmap);
        assert_eq!(vm.collapse_pages(region.slot), Ok(0));
        drop(taken);
        assert_eq!(vm.collapse_pages(region.slot), Ok(1));
    });
}

/// Beyond 16 ranges, those that are announced share a place, which reaches from the first to the last of them.
#[test]
fn between_ranges_that_share_a_place_nothing_is_announced_at_which_faults_are_not_refused() {
    let machine = Machine::new(64);
    let vm = Vm::create(machine.config()).unwrap();
    let region = |number: u64| Gfn::new(number * 512)..Gfn::new(number * 512 + 1);
    let stage2 = vm.stage2();
    let _own: Vec<_> = (0..16).map(|_| stage2.begin_invalidation(&region(0))).collect();
    let low = stage2.begin_invalidation(&region(0));
    let _high = stage2.begin_invalidation(&region(20));
    assert!(stage2.is_announced(&low, &region(0)));
    assert!(!stage2.is_announced(&low, &region(10)), "a fault there is not refused");
    let zaps = || stage2.zap(&low, region(10), Tables::Keep, Slice::default());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(zaps));
    assert!(panicked.is_err());
}

/// What maps a page, or leads to a table, for guests that have EPT: present in every way, and write-back.
const fn leaf(frame: u64) -> u64 {
    frame << 12 | 7 | 6 << 3 | 1 << 7 | 1 << 8
}

/// The host takes memory away while a guest accesses it, over and over, and gives the frames of its tables out as memory
/// whose contents lead elsewhere.
#[test]
fn a_guest_walks_no_table_that_is_free() {
    const GPA: u64 = 1 << 30;
    const SECRET: u64 = 0x005e_c2e7;
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 300 };
    let machine = Machine::new(4096);
    let vm = Vm::create(machine.config()).unwrap();
    let backing = machine.memory().allocate(512).unwrap();
    let secret = machine.memory().allocate(1).unwrap();
    machine.memory().word(secret).store(SECRET, Ordering::SeqCst);
    vm.set_memory_region(&page_at(GPA, 512, backing)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let over = AtomicBool::new(false);
    let loaded = thread::scope(|scope| {
        let guest = scope.spawn(|| {
            let mut loaded = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let mut guest = machine.guest(vec![Step::Load(GPA); 1000]);
                let exit = vcpu.run(&mut guest);
                assert!(matches!(exit, Exit::Halt | Exit::Kicked), "{exit:?}");
                loaded.extend(guest.loaded().iter().copied().filter(|value| *value != 0));
            }
            loaded
        });
        let is_over = Over(&over);
        for _ in 0..ROUNDS {
            let taken = vm.invalidate_start(backing, 512 * PAGE_SIZE, Reason::Unmap);
            // What was the tables' is the next to be given out.
            let page = machine.memory().allocate(1).unwrap();
            machine.memory().word(page).store(leaf(secret.get() >> 12), Ordering::SeqCst);
            thread::yield_now();
            drop(taken);
            thread::yield_now();
        }
        drop(is_over);
        vm.kick(0);
        guest.join().unwrap()
    });
    assert_eq!(loaded, [], "the guest's memory has zeroes only");
}
