//! VMIDs under loom: activations, roll-overs, retirements and invalidations in every interleaving, with every value
//! that a load may return. CPUs walk from whatever root their register names, guest or not, whenever somebody looks.

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
use mayfly_stage2::{VcpuMark, VmidTag, Vmids};

const NUMBERS: usize = 3;
const CPUS: usize = 3;

/// The CPU that [`take`] leaves.
const TAKER: u32 = 2;

#[derive(Default)]
struct Cpu {
    /// What its translation base register names, and whose tables it walks with.
    named: Option<(Vmid, u32, Arc<AtomicU64>, VcpuMark)>,
    /// What its TLB holds under each number.
    tlb: [Option<Translation>; NUMBERS],
}

#[derive(Clone, Copy)]
struct Translation {
    root: u32,
    version: u64,
    vcpu: VcpuMark,
}

impl Cpu {
    fn walk(&mut self) {
        if let Some((vmid, root, table, vcpu)) = &self.named {
            self.tlb[index(*vmid)].get_or_insert_with(|| Translation {
                root: *root,
                version: table.load(Ordering::Relaxed),
                vcpu: *vcpu,
            });
        }
    }
}

#[derive(Clone)]
struct Cpus(std::sync::Arc<Mutex<[Cpu; CPUS]>>);

impl Cpus {
    /// Has them all walk, before and after.
    fn with<T>(&self, what: impl FnOnce(&mut [Cpu; CPUS]) -> T) -> T {
        let mut cpus = self.0.lock().unwrap();
        cpus.iter_mut().for_each(Cpu::walk);
        let result = what(&mut cpus);
        cpus.iter_mut().for_each(Cpu::walk);
        result
    }
}

// SAFETY: shared through loom's mutex alone.
unsafe impl Send for Cpus {}
// SAFETY: as above.
unsafe impl Sync for Cpus {}

impl world::Hooks for Cpus {
    fn forget(&self) {
        self.with(|cpus| cpus.iter_mut().for_each(|cpu| cpu.tlb = [None; NUMBERS]));
    }

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        self.with(|cpus| {
            cpus[cpu as usize].named.take_if(|named| named.0 == vmid);
        });
    }
}

struct Machine {
    vmids: Vmids,
    cpus: Cpus,
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
    table: Arc<AtomicU64>,
}

fn index(vmid: Vmid) -> usize {
    usize::from(vmid.0) - 1
}

impl Machine {
    /// Of so many bits, and as many CPUs as that allows, up to three.
    fn new(bits: u32) -> Arc<Self> {
        let cpus = Cpus(std::sync::Arc::new(Mutex::new(Default::default())));
        let mmu = world::mmu(Model::new(), (CPUS as u32).min((1 << bits) - 1), cpus.clone());
        Arc::new(Self {
            vmids: Vmids::try_new(mmu, bits).unwrap(),
            cpus,
            exclusive: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    fn root(&self, id: u32) -> Arc<Root> {
        Arc::new(Root { id, tag: self.vmids.tag().unwrap(), table: Arc::new(AtomicU64::new(0)) })
    }

    /// `cpu`, on which nobody else is, goes into the guest.
    fn enter(&self, cpu: u32, root: &Arc<Root>, vcpu: VcpuMark) -> Vmid {
        let active = root.tag.activate(cpu, vcpu);
        self.cpus.with(|cpus| {
            let cpu = &mut cpus[cpu as usize];
            cpu.named = Some((active.vmid, root.id, Arc::clone(&root.table), vcpu));
            if active.flush {
                cpu.tlb[index(active.vmid)] = None;
            }
        });
        active.vmid
    }

    /// A guest access on a CPU that is active on `root`.
    fn access(&self, cpu: u32, vmid: Vmid, root: &Root, vcpu: VcpuMark) {
        let used = self.cpus.with(|cpus| cpus[cpu as usize].tlb[index(vmid)].unwrap());
        assert_eq!(used.root, root.id, "a translation of another root");
        assert_eq!(used.vcpu, vcpu, "a translation of another vCPU");
    }

    /// Runs on `root`, which no other CPU does.
    fn run_alone(&self, cpu: u32, root: &Arc<Root>) -> Vmid {
        let vcpu = self.vmids.vcpu();
        let vmid = self.enter(cpu, root, vcpu);
        // SAFETY: loom checks it.
        self.exclusive[index(vmid)].with_mut(|cell| unsafe { *cell = root.id });
        self.access(cpu, vmid, root, vcpu);
        // SAFETY: loom checks it.
        self.exclusive[index(vmid)].with(|cell| assert_eq!(unsafe { *cell }, root.id));
        vmid
    }

    fn run_alone_in_thread(
        this: &Arc<Self>,
        cpu: u32,
        root: &Arc<Root>,
    ) -> thread::JoinHandle<Vmid> {
        let (machine, root) = (Arc::clone(this), Arc::clone(root));
        thread::spawn(move || machine.run_alone(cpu, &root))
    }

    fn change_table(&self, root: &Root) -> Option<Vmid> {
        root.table.store(1, Ordering::Relaxed);
        let vmid = self.vmids.assigned(&root.tag);
        self.invalidate(vmid);
        vmid
    }

    fn invalidate(&self, vmid: Option<Vmid>) {
        if let Some(vmid) = vmid {
            self.cpus.with(|cpus| cpus.iter_mut().for_each(|cpu| cpu.tlb[index(vmid)] = None));
        }
    }

    fn retire(&self, root: &Root) {
        self.vmids.leave(&root.tag);
        let vmid = self.vmids.assigned(&root.tag);
        self.invalidate(vmid);
        self.cpus.with(|cpus| {
            for cpu in cpus {
                assert!(cpu.named.as_ref().is_none_or(|named| named.1 != root.id));
                let mut held = cpu.tlb.iter().flatten();
                assert!(held.all(|held| held.root != root.id), "a translation was left");
            }
        });
        self.vmids.retire(&root.tag);
    }

    fn assert_up_to_date(&self, root: &Root) {
        self.cpus.with(|cpus| {
            for held in cpus.iter().flat_map(|cpu| cpu.tlb.iter().flatten()) {
                assert!(held.root != root.id || held.version == 1, "a translation was missed");
            }
        });
    }
}

/// Gives numbers to so many roots, and leaves translations of theirs behind.
fn take(machine: &Machine, count: usize) {
    for id in 0..count {
        machine.run_alone(TAKER, &machine.root(100 + id as u32));
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
    // One number is left, for whoever comes first; or none.
    for taken in [NUMBERS - 1, NUMBERS] {
        check_preempted(2, move || {
            let machine = Machine::new(2);
            let [one, other] = [1, 2].map(|id| machine.root(id));
            take(&machine, taken);
            let thread = Machine::run_alone_in_thread(&machine, 1, &other);
            let here = machine.run_alone(0, &one);
            assert_ne!(here, thread.join().unwrap());
        });
    }
}

#[test]
fn two_vcpus_that_share_the_only_cpu_take_the_only_number_from_each_other() {
    check(|| {
        let machine = Machine::new(1);
        let [one, other] = [1, 2].map(|id| machine.root(id));
        let turn = Arc::new(Mutex::new(()));
        let thread = {
            let (machine, other, turn) = (machine.clone(), other.clone(), turn.clone());
            thread::spawn(move || {
                let _turn = turn.lock().unwrap();
                machine.run_alone(0, &other);
            })
        };
        for _ in 0..2 {
            let _turn = turn.lock().unwrap();
            machine.run_alone(0, &one);
        }
        thread.join().unwrap();
    });
}

#[test]
fn two_vcpus_of_one_root_that_share_a_cpu_find_nothing_of_each_other() {
    check(|| {
        let machine = Machine::new(2);
        let [root, between] = [1, 2].map(|id| machine.root(id));
        let turn = Arc::new(Mutex::new(()));
        let [here, there] = [(); 2].map(|()| {
            let (machine, root, turn) = (machine.clone(), root.clone(), turn.clone());
            move || {
                let vcpu = machine.vmids.vcpu();
                for _ in 0..2 {
                    let _turn = turn.lock().unwrap();
                    let vmid = machine.enter(0, &root, vcpu);
                    machine.access(0, vmid, &root, vcpu);
                }
            }
        });
        let thread = thread::spawn(there);
        {
            let _turn = turn.lock().unwrap();
            machine.run_alone(0, &between);
        }
        here();
        thread.join().unwrap();
    });
}

#[test]
fn two_cpus_that_enter_a_new_root_at_once_agree_on_its_number() {
    // Two numbers are left, or one, so that whoever comes second may begin a new generation.
    for taken in [NUMBERS - 2, NUMBERS - 1] {
        // With three it takes minutes.
        check_preempted(2, move || {
            let machine = Machine::new(2);
            let root = machine.root(1);
            take(&machine, taken);
            let thread = {
                let (machine, root) = (machine.clone(), root.clone());
                thread::spawn(move || machine.enter(1, &root, machine.vmids.vcpu()))
            };
            let here = machine.enter(0, &root, machine.vmids.vcpu());
            assert_eq!(here, thread.join().unwrap());
        });
    }
}

#[test]
fn a_number_that_two_cpus_claimed_for_one_root_is_not_lost() {
    check(|| {
        let machine = Machine::new(2);
        let root = machine.root(1);
        let thread = {
            let (machine, root) = (machine.clone(), root.clone());
            thread::spawn(move || machine.enter(1, &root, machine.vmids.vcpu()))
        };
        machine.enter(0, &root, machine.vmids.vcpu());
        thread.join().unwrap();
        take(&machine, NUMBERS - 1);
        assert_eq!(machine.vmids.rollovers(), 0);
    });
}

#[test]
fn a_running_vcpus_root_is_found_under_its_number_while_others_roll_over() {
    check(|| {
        let machine = Machine::new(2);
        let [root, other] = [1, 2].map(|id| machine.root(id));
        let vcpu = machine.vmids.vcpu();
        let vmid = machine.enter(0, &root, vcpu);
        take(&machine, NUMBERS - 1);
        let thread = Machine::run_alone_in_thread(&machine, 1, &other);
        machine.access(0, vmid, &root, vcpu);
        assert_eq!(machine.change_table(&root), Some(vmid));
        machine.assert_up_to_date(&root);
        assert_eq!(machine.enter(0, &root, vcpu), vmid);
        thread.join().unwrap();
        assert_eq!(machine.vmids.rollovers(), 1);
    });
}

#[test]
fn a_cpu_that_is_idle_on_a_root_keeps_it_through_a_roll_over_for_a_vcpu_that_migrates() {
    check(|| {
        let machine = Machine::new(2);
        let [root, other] = [1, 2].map(|id| machine.root(id));
        let vcpu = machine.vmids.vcpu();
        let vmid = machine.enter(0, &root, vcpu);
        take(&machine, NUMBERS - 1);
        // CPU 0 has nothing to do; its vCPU goes to CPU 1, and another root comes to CPU 0.
        let thread = {
            let (machine, root) = (machine.clone(), root.clone());
            thread::spawn(move || {
                let vmid = machine.enter(1, &root, vcpu);
                machine.access(1, vmid, &root, vcpu);
                vmid
            })
        };
        let other_vmid = machine.run_alone(0, &other);
        let migrated = thread.join().unwrap();
        assert_ne!(migrated, other_vmid);
        assert_eq!(machine.vmids.assigned(&root.tag), Some(migrated));
        let _ = vmid;
    });
}

#[test]
fn a_cpu_that_goes_to_another_root_walks_from_the_last_under_no_number_that_is_given_out_anew() {
    check(|| {
        let machine = Machine::new(2);
        let [old, other, new] = [1, 2, 3].map(|id| machine.root(id));
        machine.run_alone(0, &old);
        take(&machine, NUMBERS - 1);
        let thread = {
            let (machine, new) = (machine.clone(), new.clone());
            thread::spawn(move || machine.enter(1, &new, machine.vmids.vcpu()))
        };
        machine.enter(0, &other, machine.vmids.vcpu());
        thread.join().unwrap();
        let vcpu = machine.vmids.vcpu();
        let vmid = machine.enter(0, &new, vcpu);
        machine.access(0, vmid, &new, vcpu);
    });
}

#[test]
fn a_vcpu_that_joins_a_running_one_during_a_roll_over_gets_its_number() {
    check(|| {
        let machine = Machine::new(2);
        let [root, other] = [1, 2].map(|id| machine.root(id));
        let vmid = machine.enter(0, &root, machine.vmids.vcpu());
        take(&machine, NUMBERS - 1);
        let thread = Machine::run_alone_in_thread(&machine, 1, &other);
        // Whoever had the third CPU has left it.
        assert_eq!(machine.enter(TAKER, &root, machine.vmids.vcpu()), vmid);
        thread.join().unwrap();
        assert_eq!(machine.vmids.assigned(&root.tag), Some(vmid));
    });
}

#[test]
fn no_translation_of_a_root_entered_for_the_first_time_misses_a_change() {
    check(|| {
        let machine = Machine::new(2);
        let root = machine.root(1);
        let thread = Machine::run_alone_in_thread(&machine, 1, &root);
        machine.change_table(&root);
        thread.join().unwrap();
        machine.assert_up_to_date(&root);
    });
}

#[test]
fn no_translation_misses_a_change_where_another_cpu_gave_the_root_its_number() {
    check(|| {
        let machine = Machine::new(2);
        let root = machine.root(1);
        let cpus = [0, 1].map(|cpu| {
            let (machine, root) = (Arc::clone(&machine), Arc::clone(&root));
            thread::spawn(move || {
                let vmid = root.tag.activate(cpu, machine.vmids.vcpu()).vmid;
                (vmid, root.table.load(Ordering::Relaxed))
            })
        });
        root.table.store(1, Ordering::Relaxed);
        let assigned = machine.vmids.assigned(&root.tag);
        for cpu in cpus {
            let (vmid, version) = cpu.join().unwrap();
            assert!(version == 1 || assigned == Some(vmid), "a translation was missed");
        }
    });
}

#[test]
fn no_translation_misses_a_change_where_a_cpu_named_the_last_root_of_that_number() {
    check(|| {
        let machine = Machine::new(2);
        let [old, root] = [1, 2].map(|id| machine.root(id));
        machine.run_alone(0, &old);
        machine.retire(&old);
        let cpus = [0, 1].map(|cpu| {
            let (machine, root) = (Arc::clone(&machine), Arc::clone(&root));
            thread::spawn(move || {
                let vmid = root.tag.activate(cpu, machine.vmids.vcpu()).vmid;
                (vmid, root.table.load(Ordering::Relaxed))
            })
        });
        root.table.store(1, Ordering::Relaxed);
        let assigned = machine.vmids.assigned(&root.tag);
        for cpu in cpus {
            let (vmid, version) = cpu.join().unwrap();
            assert!(version == 1 || assigned == Some(vmid), "a translation was missed");
        }
    });
}

#[test]
fn no_translation_misses_a_change_while_the_root_gets_a_new_number() {
    check(|| {
        let machine = Machine::new(1);
        let [root, other] = [1, 2].map(|id| machine.root(id));
        machine.run_alone(0, &root);
        machine.invalidate(machine.vmids.assigned(&root.tag));
        machine.run_alone(0, &other);
        let thread = Machine::run_alone_in_thread(&machine, 0, &root);
        machine.change_table(&root);
        thread.join().unwrap();
        machine.assert_up_to_date(&root);
    });
}

#[test]
fn no_translation_misses_a_change_while_the_root_loses_its_number() {
    check(|| {
        let machine = Machine::new(1);
        let [root, other] = [1, 2].map(|id| machine.root(id));
        machine.run_alone(0, &root);
        let thread = Machine::run_alone_in_thread(&machine, 0, &other);
        machine.change_table(&root);
        thread.join().unwrap();
        machine.assert_up_to_date(&root);
    });
}

#[test]
fn a_number_retired_while_others_roll_over_is_neither_lost_nor_shared() {
    check(|| {
        let machine = Machine::new(2);
        let [old, new] = [1, 2].map(|id| machine.root(id));
        machine.run_alone(0, &old);
        take(&machine, NUMBERS - 1);
        let thread = Machine::run_alone_in_thread(&machine, 1, &new);
        machine.retire(&old);
        thread.join().unwrap();
        let rollovers = machine.vmids.rollovers();
        if rollovers > 0 {
            // The new root has one number, and the others are free, or the taker's.
            take(&machine, NUMBERS - 1);
            assert!(machine.vmids.rollovers() - rollovers <= 1, "a number was lost");
        }
    });
}

#[test]
fn a_root_is_retired_while_the_cpu_that_names_it_goes_to_another() {
    check(|| {
        let machine = Machine::new(2);
        let [old, new] = [1, 2].map(|id| machine.root(id));
        machine.run_alone(0, &old);
        let thread = Machine::run_alone_in_thread(&machine, 0, &new);
        machine.retire(&old);
        thread.join().unwrap();
    });
}

#[test]
fn a_root_is_retired_while_the_cpu_that_names_it_is_idle_and_another_claims_its_number() {
    check(|| {
        let machine = Machine::new(2);
        let [old, new, newest] = [1, 2, 3].map(|id| machine.root(id));
        machine.run_alone(0, &old);
        take(&machine, NUMBERS - 1);
        let thread = Machine::run_alone_in_thread(&machine, 1, &new);
        machine.retire(&old);
        thread.join().unwrap();
        machine.run_alone(0, &newest);
    });
}

#[test]
fn a_retired_number_is_given_out_after_its_invalidation() {
    check(|| {
        let machine = Machine::new(2);
        let [old, new] = [1, 2].map(|id| machine.root(id));
        let vmid = machine.run_alone(0, &old);
        let thread = Machine::run_alone_in_thread(&machine, 1, &new);
        // As when it is invalidated: nobody takes it from the root meanwhile.
        // SAFETY: loom checks it.
        machine.exclusive[index(vmid)].with_mut(|cell| unsafe { *cell = 0 });
        machine.retire(&old);
        thread.join().unwrap();
    });
}
