//! VMIDs under loom: activations, roll-overs, retirements and invalidations in every interleaving, with every value
//! that a load may return. CPUs walk from whatever root their register names, guest or not, whenever somebody looks.

#![cfg(mayfly_loom)]

mod machine;
mod unseen;

#[path = "../model/explore.rs"]
mod explore;
#[path = "../vmid/world.rs"]
mod world;

use std::sync::atomic::AtomicBool;

use loom::model::Builder;
use loom::sync::atomic::Ordering;
use loom::sync::{Arc, Mutex};
use loom::thread;

use explore::explore;
use machine::{Machine, NUMBERS, Root, TAKER, index, take};

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_preempted(3, model);
}

/// With so many preemptions in an execution, or fewer if the environment says so.
fn check_preempted(at_most: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(at_most)).map(|n| n.min(at_most));
    explore(builder, model);
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

/// Two CPUs enter `root`, and walk, while its table is changed: who has walked the old one is found by its number.
fn change_while_two_enter(machine: &Arc<Machine>, root: &Arc<Root>) {
    let cpus = [0, 1].map(|cpu| {
        let (machine, root) = (Arc::clone(machine), Arc::clone(root));
        thread::spawn(move || {
            // SAFETY: each thread has a CPU of its own.
            let vmid = unsafe { root.tag.activate(cpu, machine.vmids.vcpu()) }.vmid;
            (vmid, root.table.load(Ordering::Relaxed))
        })
    });
    root.table.store(1, Ordering::Relaxed);
    let assigned = machine.vmids.assigned(&root.tag);
    for cpu in cpus {
        let (vmid, version) = cpu.join().unwrap();
        assert!(version == 1 || assigned == Some(vmid), "a translation was missed");
    }
}

#[test]
fn no_translation_misses_a_change_where_another_cpu_gave_the_root_its_number() {
    check(|| {
        let machine = Machine::new(2);
        let root = machine.root(1);
        change_while_two_enter(&machine, &root);
    });
}

#[test]
fn no_translation_misses_a_change_where_a_cpu_named_the_last_root_of_that_number() {
    check(|| {
        let machine = Machine::new(2);
        let [old, root] = [1, 2].map(|id| machine.root(id));
        machine.run_alone(0, &old);
        machine.retire(&old);
        change_while_two_enter(&machine, &root);
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
fn a_root_that_goes_takes_no_cpu_from_the_root_that_has_its_number_since() {
    check(|| {
        let machine = Machine::new(2);
        let [old, new] = [1, 2].map(|id| machine.root(id));
        machine.run_alone(TAKER, &old);
        take(&machine, NUMBERS - 1);
        let thread = Machine::run_alone_in_thread(&machine, 1, &new);
        machine.retire(&old);
        thread.join().unwrap();
        machine.assert_names(1, &new);
    });
}

/// Between the look at a line and what is asked of its CPU, that CPU may come to be on another root under the same number.
#[test]
fn a_cpu_that_is_taken_from_the_root_that_has_the_number_since_is_on_it_when_it_enters_again() {
    let was_taken = std::sync::Arc::new(AtomicBool::new(false));
    let taken = std::sync::Arc::clone(&was_taken);
    check(move || {
        let machine = Machine::new(1);
        let [old, new] = [1, 2].map(|id| machine.root(id));
        machine.run_alone(0, &old);
        let vcpu = machine.vmids.vcpu();
        let thread = {
            let (machine, new) = (machine.clone(), new.clone());
            thread::spawn(move || machine.enter(0, &new, vcpu))
        };
        machine.retire(&old);
        let vmid = thread.join().unwrap();
        taken.fetch_or(!machine.names_any(0), std::sync::atomic::Ordering::Relaxed);
        assert_eq!(machine.enter(0, &new, vcpu), vmid);
        machine.assert_names(0, &new);
        machine.access(0, vmid, &new, vcpu);
    });
    assert!(was_taken.load(std::sync::atomic::Ordering::Relaxed), "the case was not met");
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
