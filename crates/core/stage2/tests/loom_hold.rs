//! Holds under loom: a vCPU that enters its guest against a reclaimer that looks for it.
//!
//! A root that is freed is mutated without synchronisation, so loom fails the model if a vCPU could still be in a guest
//! on it, or come to be.

#![cfg(mayfly_loom)]

#[path = "model/explore.rs"]
mod explore;
#[allow(dead_code)]
mod model;

use std::sync::Arc;

use loom::model::Builder;
use loom::thread::{self, JoinHandle};

use mayfly_platform::Platform;
use mayfly_platform::address::Pfn;
use mayfly_platform::sync::{AtomicBool, AtomicU32, Ordering};
use mayfly_stage2::{Reclaimed, Role};

use explore::explore;
use model::{NoTlb, Resides, WHOLE};

type Vm = model::Vm<model::Tiny<false>, NoTlb>;

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    explore(builder, model);
}

/// A VM with a root, on a machine with `frames` frames.
fn vm(frames: usize) -> Arc<Vm> {
    let vm = Arc::new(Vm::new(frames, NoTlb));
    vm.stage2.ensure_root(Role::MAIN).unwrap();
    vm
}

/// A vCPU that goes into its guest so many times, where it has hardware walk the root.
fn vcpu(vm: &Arc<Vm>, times: usize) -> JoinHandle<()> {
    let vm = Arc::clone(vm);
    let mut resides = Resides::new(&vm);
    thread::spawn(move || {
        for _ in 0..times {
            resides.enter(&vm, |root| assert_eq!(vm.world.arena.load(root.top(), 0), 0, "freed"));
        }
    })
}

/// The present root's.
fn top(vm: &Vm) -> Pfn {
    vm.stage2.find_root(Role::MAIN, &vm.domain.read_lock()).unwrap().top()
}

fn reclaim(vm: &Vm) {
    while vm.config.reclaimer.run_slice(WHOLE) == Reclaimed::More {}
}

#[test]
fn a_root_that_was_replaced_is_freed_under_no_vcpu_and_kept_by_none_that_is_outside() {
    check(3, || {
        let vm = vm(2);
        let vcpu = vcpu(&vm, 2);
        vm.stage2.replace_roots().unwrap().finish();
        reclaim(&vm);
        vcpu.join().unwrap();
        assert_eq!(vm.config.reclaimer.run_slice(WHOLE), Reclaimed::All);
        assert_eq!(vm.world.arena.in_use(), 1);
        vm.end();
    });
}

#[test]
fn nobody_is_in_a_guest_on_a_root_whose_replacement_is_finished() {
    check(3, || {
        let vm = vm(2);
        let old = top(&vm);
        let finished = Arc::new(AtomicBool::new(false));
        let vcpu = {
            let (vm, finished) = (Arc::clone(&vm), Arc::clone(&finished));
            let mut resides = Resides::new(&vm);
            thread::spawn(move || {
                resides.enter(&vm, |root| {
                    assert!(root.top() != old || !finished.load(Ordering::SeqCst));
                });
            })
        };
        vm.stage2.replace_roots().unwrap().finish();
        finished.store(true, Ordering::SeqCst);
        vcpu.join().unwrap();
        reclaim(&vm);
        vm.end();
    });
}

/// Who asks a vCPU to tell when it comes out may have come too late for the stay in the guest that he has found it in.
#[test]
fn nobody_waits_for_a_vcpu_that_is_in_its_guest_on_the_new_root() {
    check(3, || {
        let vm = vm(2);
        let old = top(&vm);
        let finished = Arc::new(AtomicU32::new(0));
        let vcpu = {
            let (vm, finished) = (Arc::clone(&vm), Arc::clone(&finished));
            let mut resides = Resides::new(&vm);
            thread::spawn(move || {
                for _ in 0..2 {
                    resides.enter(&vm, |root| {
                        while root.top() != old && finished.load(Ordering::Acquire) == 0 {
                            vm.world.wait(&finished, 0);
                        }
                    });
                }
            })
        };
        vm.stage2.replace_roots().unwrap().finish();
        finished.store(1, Ordering::Release);
        vm.world.wake(&finished);
        vcpu.join().unwrap();
        reclaim(&vm);
        vm.end();
    });
}

#[test]
fn of_two_vcpus_neither_is_on_a_root_that_is_freed() {
    check(2, || {
        let vm = vm(2);
        let vcpus = [vcpu(&vm, 1), vcpu(&vm, 1)];
        vm.stage2.replace_roots().unwrap().finish();
        reclaim(&vm);
        for vcpu in vcpus {
            vcpu.join().unwrap();
        }
        assert_eq!(vm.config.reclaimer.run_slice(WHOLE), Reclaimed::All);
        assert_eq!(vm.world.arena.in_use(), 1);
        vm.end();
    });
}

#[test]
fn a_vm_is_destroyed_under_a_vcpu_that_goes_in_and_out() {
    check(3, || {
        let vm = vm(1);
        let vcpu = vcpu(&vm, 2);
        vm.stage2.retire();
        reclaim(&vm);
        vcpu.join().unwrap();
        vm.assert_reclaimed();
    });
}

#[test]
fn a_vcpu_that_comes_while_its_vm_is_destroyed_finds_no_root() {
    check(2, || {
        let vm = vm(1);
        let other = {
            let vm = Arc::clone(&vm);
            thread::spawn(move || {
                let mut resides = Resides::new(&vm);
                resides.enter(&vm, |root| assert_eq!(vm.world.arena.load(root.top(), 0), 0));
            })
        };
        vm.stage2.retire();
        reclaim(&vm);
        other.join().unwrap();
        vm.assert_reclaimed();
    });
}
