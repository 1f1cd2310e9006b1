//! VMIDs under loom: activations, roll-overs, retirements and invalidations in every interleaving, with every value
//! that a load may return.

#![cfg(mayfly_loom)]

#[path = "vmid/world.rs"]
mod world;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use mayfly_platform::Model;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{ActiveVmid, AllVmidsActive, VmidTag, Vmids};

const NUMBERS: usize = 3;

/// What the TLBs hold under each number: a version of a root's table.
type Tlb = Mutex<[Option<Translation>; NUMBERS]>;

#[derive(Clone, Copy)]
struct Translation {
    root: u32,
    version: u64,
}

struct Machine {
    vmids: Vmids,
    tlb: std::sync::Arc<Tlb>,
    /// Written by whoever is active under a number: loom fails the model where two are, or are not ordered.
    exclusive: [UnsafeCell<u32>; NUMBERS],
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

struct Root {
    id: u32,
    tag: VmidTag,
    table: AtomicU64,
}

impl Root {
    fn new(id: u32) -> Arc<Self> {
        Arc::new(Self { id, tag: VmidTag::new(), table: AtomicU64::new(0) })
    }
}

fn index(vmid: Vmid) -> usize {
    usize::from(vmid.0) - 1
}

impl Machine {
    fn new(bits: u32) -> Arc<Self> {
        let tlb = std::sync::Arc::new(Mutex::new([None; NUMBERS]));
        let forget = {
            let tlb = std::sync::Arc::clone(&tlb);
            move || *tlb.lock().unwrap() = [None; NUMBERS]
        };
        Arc::new(Self {
            vmids: Vmids::try_new(world::mmu(Model::new(), forget), bits).unwrap(),
            tlb,
            exclusive: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    fn vcpu(&self) -> ActiveVmid {
        self.vmids.register().unwrap()
    }

    /// A guest access of a vCPU that is active on `root`.
    fn access(&self, vmid: Vmid, root: &Root) {
        let mut tlb = self.tlb.lock().unwrap();
        let used = tlb[index(vmid)].get_or_insert_with(|| Translation {
            root: root.id,
            version: root.table.load(Ordering::Relaxed),
        });
        assert_eq!(used.root, root.id, "a translation of another root");
    }

    /// Runs on `root`, which no other vCPU does.
    fn run_alone(&self, vcpu: &mut ActiveVmid, root: &Root) -> Result<(), AllVmidsActive> {
        let vmid = vcpu.activate(&root.tag)?;
        // SAFETY: loom checks it.
        self.exclusive[index(vmid)].with_mut(|cell| unsafe { *cell = root.id });
        self.access(vmid, root);
        // SAFETY: loom checks it.
        self.exclusive[index(vmid)].with(|cell| assert_eq!(unsafe { *cell }, root.id));
        vcpu.deactivate();
        Ok(())
    }

    fn run_alone_in_thread(
        this: &Arc<Self>,
        mut vcpu: ActiveVmid,
        root: &Arc<Root>,
    ) -> thread::JoinHandle<Result<(), AllVmidsActive>> {
        let (machine, root) = (Arc::clone(this), Arc::clone(root));
        thread::spawn(move || machine.run_alone(&mut vcpu, &root))
    }

    fn change_table(&self, root: &Root) -> Option<Vmid> {
        root.table.store(1, Ordering::Relaxed);
        let vmid = self.vmids.assigned(&root.tag);
        self.invalidate(vmid);
        vmid
    }

    fn invalidate(&self, vmid: Option<Vmid>) {
        if let Some(vmid) = vmid {
            self.tlb.lock().unwrap()[index(vmid)] = None;
        }
    }

    fn retire(&self, root: &Root) {
        self.invalidate(self.vmids.assigned(&root.tag));
        self.vmids.retire(&root.tag);
    }

    fn assert_up_to_date(&self, root: &Root) {
        for used in self.tlb.lock().unwrap().iter().flatten() {
            assert!(used.root != root.id || used.version == 1, "a translation was missed");
        }
    }
}

/// Gives numbers to so many roots, and leaves translations of theirs behind.
fn take(machine: &Machine, count: usize) {
    let mut vcpu = machine.vcpu();
    for id in 0..count {
        machine.run_alone(&mut vcpu, &Root::new(100 + id as u32)).unwrap();
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_preempted(3, model);
}

/// With so many preemptions in an execution, or fewer if the environment says so.
fn check_preempted(at_most: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(at_most)).map(|n| n.min(at_most));
    builder.check(model);
}

#[test]
fn two_roots_that_contend_for_one_number_are_never_active_under_it_at_once() {
    // Two, since the vCPUs take the number from each other as often as they are preempted.
    check_preempted(2, || {
        let machine = Machine::new(1);
        let [one, other] = [1, 2].map(Root::new);
        let mut vcpu = machine.vcpu();
        let thread = Machine::run_alone_in_thread(&machine, machine.vcpu(), &other);
        let here = machine.run_alone(&mut vcpu, &one);
        let there = thread.join().unwrap();
        assert!(here.is_ok() || there.is_ok());
    });
}

#[test]
fn a_root_that_had_the_number_before_takes_it_back_only_when_the_other_has_left() {
    // Two, since the vCPUs take the number from each other as often as they are preempted.
    check_preempted(2, || {
        let machine = Machine::new(1);
        let [one, other] = [1, 2].map(Root::new);
        let mut vcpu = machine.vcpu();
        machine.run_alone(&mut vcpu, &one).unwrap();
        let thread = Machine::run_alone_in_thread(&machine, machine.vcpu(), &other);
        let here = machine.run_alone(&mut vcpu, &one);
        let there = thread.join().unwrap();
        assert!(here.is_ok() || there.is_ok());
    });
}

#[test]
fn two_vcpus_that_enter_a_new_root_at_once_agree_on_its_number() {
    // Two numbers are left, or one, so that whoever comes second may begin a new generation.
    for taken in [NUMBERS - 2, NUMBERS - 1] {
        check(move || {
            let machine = Machine::new(2);
            let root = Root::new(1);
            let [mut one, mut other] = [(); 2].map(|()| machine.vcpu());
            take(&machine, taken);
            let thread = {
                let root = Arc::clone(&root);
                thread::spawn(move || {
                    let vmid = other.activate(&root.tag).unwrap();
                    (vmid, other)
                })
            };
            let here = one.activate(&root.tag).unwrap();
            let (there, _other) = thread.join().unwrap();
            assert_eq!(here, there);
        });
    }
}

#[test]
fn a_number_that_two_vcpus_claimed_for_one_root_is_not_lost() {
    check(|| {
        let machine = Machine::new(2);
        let root = Root::new(1);
        let [mut one, mut other, mut third] = [(); 3].map(|()| machine.vcpu());
        let thread = {
            let root = Arc::clone(&root);
            thread::spawn(move || {
                other.activate(&root.tag).unwrap();
                other
            })
        };
        one.activate(&root.tag).unwrap();
        let _other = thread.join().unwrap();
        for _ in 1..NUMBERS {
            third.activate(&VmidTag::new()).unwrap();
        }
        assert_eq!(machine.vmids.rollovers(), 0);
    });
}

#[test]
fn a_running_vcpus_root_is_found_under_its_number_while_others_roll_over() {
    check(|| {
        let machine = Machine::new(2);
        let [root, other] = [1, 2].map(Root::new);
        let mut running = machine.vcpu();
        let vmid = running.activate(&root.tag).unwrap();
        take(&machine, NUMBERS - 1);
        let thread = Machine::run_alone_in_thread(&machine, machine.vcpu(), &other);
        machine.access(vmid, &root);
        assert_eq!(machine.change_table(&root), Some(vmid));
        machine.assert_up_to_date(&root);
        assert_eq!(running.activate(&root.tag), Ok(vmid));
        thread.join().unwrap().unwrap();
        assert_eq!(machine.vmids.rollovers(), 1);
    });
}

#[test]
fn a_vcpu_that_joins_a_running_one_during_a_roll_over_gets_its_number() {
    check(|| {
        let machine = Machine::new(2);
        let [root, other] = [1, 2].map(Root::new);
        let [mut running, mut joining] = [(); 2].map(|()| machine.vcpu());
        let vmid = running.activate(&root.tag).unwrap();
        take(&machine, NUMBERS - 1);
        let thread = Machine::run_alone_in_thread(&machine, machine.vcpu(), &other);
        assert_eq!(joining.activate(&root.tag), Ok(vmid));
        thread.join().unwrap().unwrap();
        assert_eq!(machine.vmids.assigned(&root.tag), Some(vmid));
    });
}

#[test]
fn no_translation_of_a_root_entered_for_the_first_time_misses_a_change() {
    check(|| {
        let machine = Machine::new(2);
        let root = Root::new(1);
        let thread = Machine::run_alone_in_thread(&machine, machine.vcpu(), &root);
        machine.change_table(&root);
        thread.join().unwrap().unwrap();
        machine.assert_up_to_date(&root);
    });
}

#[test]
fn no_translation_misses_a_change_where_another_vcpu_gave_the_root_its_number() {
    check(|| {
        let machine = Machine::new(2);
        let root = Root::new(1);
        let vcpus = [(); 2].map(|()| {
            let (machine, root) = (Arc::clone(&machine), Arc::clone(&root));
            let mut vcpu = machine.vcpu();
            thread::spawn(move || {
                let vmid = vcpu.activate(&root.tag).unwrap();
                let version = root.table.load(Ordering::Relaxed);
                (vmid, version)
            })
        });
        root.table.store(1, Ordering::Relaxed);
        let assigned = machine.vmids.assigned(&root.tag);
        for vcpu in vcpus {
            let (vmid, version) = vcpu.join().unwrap();
            assert!(version == 1 || assigned == Some(vmid), "a translation was missed");
        }
    });
}

#[test]
fn no_translation_misses_a_change_while_the_root_gets_a_new_number() {
    check(|| {
        let machine = Machine::new(1);
        let [root, other] = [1, 2].map(Root::new);
        let mut vcpu = machine.vcpu();
        machine.run_alone(&mut vcpu, &root).unwrap();
        machine.invalidate(machine.vmids.assigned(&root.tag));
        machine.run_alone(&mut vcpu, &other).unwrap();
        let thread = Machine::run_alone_in_thread(&machine, vcpu, &root);
        machine.change_table(&root);
        thread.join().unwrap().unwrap();
        machine.assert_up_to_date(&root);
    });
}

#[test]
fn no_translation_misses_a_change_while_the_root_loses_its_number() {
    check(|| {
        let machine = Machine::new(1);
        let [root, other] = [1, 2].map(Root::new);
        let mut vcpu = machine.vcpu();
        machine.run_alone(&mut vcpu, &root).unwrap();
        let thread = Machine::run_alone_in_thread(&machine, vcpu, &other);
        machine.change_table(&root);
        machine.assert_up_to_date(&root);
        thread.join().unwrap().unwrap();
    });
}

#[test]
fn a_number_retired_while_others_roll_over_is_neither_lost_nor_shared() {
    check(|| {
        let machine = Machine::new(2);
        let [old, new] = [1, 2].map(Root::new);
        let [mut leaving, vcpu] = [(); 2].map(|()| machine.vcpu());
        let vmid = leaving.activate(&old.tag).unwrap();
        machine.access(vmid, &old);
        take(&machine, NUMBERS - 1);
        let thread = Machine::run_alone_in_thread(&machine, vcpu, &new);
        leaving.deactivate();
        machine.retire(&old);
        thread.join().unwrap().unwrap();
        let rollovers = machine.vmids.rollovers();
        if rollovers > 0 {
            // The new root has one number, and the others are free.
            take(&machine, NUMBERS - 1);
            assert_eq!(machine.vmids.rollovers(), rollovers, "a number was lost");
        }
    });
}

#[test]
fn a_retired_number_is_given_out_after_its_invalidation() {
    check(|| {
        let machine = Machine::new(2);
        let [old, new] = [1, 2].map(Root::new);
        let mut vcpu = machine.vcpu();
        machine.run_alone(&mut vcpu, &old).unwrap();
        let thread = Machine::run_alone_in_thread(&machine, vcpu, &new);
        let vmid = machine.vmids.assigned(&old.tag).unwrap();
        machine.invalidate(Some(vmid));
        // SAFETY: loom checks it.
        machine.exclusive[index(vmid)].with_mut(|cell| unsafe { *cell = 0 });
        machine.vmids.retire(&old.tag);
        thread.join().unwrap().unwrap();
    });
}

#[test]
fn a_vcpu_registered_during_a_roll_over_is_in_the_generation_that_comes() {
    check(|| {
        let machine = Machine::new(2);
        let [new, other] = [1, 2].map(Root::new);
        let vcpu = machine.vcpu();
        take(&machine, NUMBERS);
        let thread = Machine::run_alone_in_thread(&machine, vcpu, &new);
        machine.run_alone(&mut machine.vcpu(), &other).unwrap();
        thread.join().unwrap().unwrap();
    });
}
