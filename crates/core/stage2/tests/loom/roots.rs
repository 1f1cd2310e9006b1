//! Roots that are made, replaced and reclaimed.

use std::sync::Arc;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread::{self, JoinHandle};

use mayfly_platform::address::Pfn;
use mayfly_srcu::Reader;
use mayfly_stage2::{Error, Level, Mapped, Reclaimed, Role, RootRef, Tables};

use super::explore::explore;
use super::model::{NoTlb, WHOLE, gfn, gfns, readable};
use super::{InPlace, NEW, OLD, Vcpu, Vm, check};
use crate::model::granted::MapsAny;

/// A VM without a root, and a reader for each of two threads.
fn rootless(frames: usize) -> (Arc<Vm<InPlace>>, [Reader; 2]) {
    let vm = Arc::new(Vm::new(frames, NoTlb));
    let readers = [(); 2].map(|()| vm.domain.reader().unwrap());
    (vm, readers)
}

fn load(vm: &Vm<InPlace>, reader: &Reader) -> Result<RootRef<InPlace>, Error> {
    vm.stage2.root(Role::MAIN, &reader.lock())
}

fn load_in_thread(
    vm: &Arc<Vm<InPlace>>,
    reader: Reader,
) -> JoinHandle<Result<RootRef<InPlace>, Error>> {
    let vm = Arc::clone(vm);
    thread::spawn(move || load(&vm, &reader))
}

#[test]
fn two_that_want_a_root_get_the_same() {
    check(|| {
        let (vm, [here, there]) = rootless(2);
        let other = load_in_thread(&vm, there);
        let root = load(&vm, &here).unwrap();
        let other = other.join().unwrap().unwrap();
        assert!(root.is(&other));
        assert_eq!(vm.world.arena.in_use(), 1);
        drop((root, other));
        vm.end();
    });
}

#[test]
fn a_root_made_while_the_vm_is_destroyed_is_not_lost() {
    check(|| {
        let (vm, [_here, there]) = rootless(1);
        let other = load_in_thread(&vm, there);
        vm.stage2.retire();
        if let Err(error) = other.join().unwrap() {
            assert_eq!(error, Error::Destroyed);
        }
        vm.assert_reclaimed();
    });
}

#[test]
fn a_root_is_reclaimed_after_its_last_reference_and_not_before() {
    check(|| {
        let (vm, [here, there]) = rootless(2);
        let root = load(&vm, &here).unwrap();
        let vcpu = {
            let vm = Arc::clone(&vm);
            thread::spawn(move || {
                let section = there.lock();
                let seen = vm.stage2.sample();
                let mapped = root.map(gfn(5), Level::PAGE, &readable(OLD), seen, &section);
                assert_eq!(mapped, Ok(Mapped::Installed));
                drop(section);
                drop(root);
            })
        };
        vm.stage2.retire();
        let _ = vm.config.reclaimer.run_slice(WHOLE);
        vcpu.join().unwrap();
        vm.assert_reclaimed();
    });
}

/// Nothing but the reference orders the two: no section, and no hold.
#[test]
fn what_is_done_with_a_root_by_a_reference_comes_before_it_is_freed() {
    check(|| {
        let (vm, [here, _there]) = rootless(1);
        let root = load(&vm, &here).unwrap();
        let user = {
            let vm = Arc::clone(&vm);
            thread::spawn(move || {
                assert_eq!(vm.world.arena.load(root.top(), 0), 0);
                drop(root);
            })
        };
        vm.stage2.retire();
        while vm.config.reclaimer.run_slice(WHOLE) == Reclaimed::More {}
        user.join().unwrap();
        vm.assert_reclaimed();
    });
}

#[test]
fn a_vcpu_that_loads_a_root_while_all_are_replaced_holds_one_that_lasts() {
    check(|| {
        let (vm, [here, there]) = rootless(3);
        drop(load(&vm, &here).unwrap());
        let vcpu = {
            let vm = Arc::clone(&vm);
            thread::spawn(move || {
                let root = load(&vm, &there).unwrap();
                let translated = root.translate(gfn(5), &there.lock());
                assert_eq!(translated, None);
            })
        };
        vm.stage2.replace_roots().unwrap().finish();
        let _ = vm.config.reclaimer.run_slice(WHOLE);
        vcpu.join().unwrap();
        assert_eq!(vm.config.reclaimer.run_slice(WHOLE), Reclaimed::All);
        assert_eq!(vm.world.arena.in_use(), 1);
        vm.end();
    });
}

#[test]
fn an_operation_on_a_range_misses_no_root_while_all_are_replaced() {
    check(|| {
        let (vm, [here, there]) = rootless(4);
        let old = load(&vm, &here).unwrap();
        let host = Arc::new(AtomicU64::new(OLD));
        let seen = vm.stage2.sample();
        old.map(gfn(5), Level::PAGE, &readable(OLD), seen, &here.lock()).unwrap();
        let notifier = {
            let (vm, host) = (Arc::clone(&vm), Arc::clone(&host));
            thread::spawn(move || {
                let invalidation = vm.stage2.begin_invalidation(&gfns(5, 1));
                host.store(NEW, Ordering::Relaxed);
                vm.stage2.zap(&invalidation, gfns(5, 1), Tables::Keep, WHOLE);
            })
        };
        let retiring = vm.stage2.replace_roots().unwrap();
        let fresh = load(&vm, &here).unwrap();
        assert!(!fresh.is(&old));
        let vcpu = Vcpu { vm: Arc::clone(&vm), root: fresh, reader: there };
        vcpu.fault(5, &host);
        notifier.join().unwrap();
        // vCPUs have not left the old root yet.
        assert_eq!(old.translate(gfn(5), &here.lock()), None);
        assert_ne!(vcpu.pfn(5), Some(OLD));
        retiring.finish();
        drop((old, vcpu));
        vm.end();
    });
}

#[test]
fn an_operation_on_a_range_misses_no_root_that_a_vcpu_of_a_destroyed_vm_runs_on() {
    check(|| {
        let (vm, [here, _there]) = rootless(2);
        let root = load(&vm, &here).unwrap();
        let seen = vm.stage2.sample();
        root.map(gfn(5), Level::PAGE, &readable(OLD), seen, &here.lock()).unwrap();
        let announced = vm.stage2.begin_invalidation(&gfns(5, 1));
        let destroyer = {
            let vm = Arc::clone(&vm);
            thread::spawn(move || vm.stage2.retire())
        };
        vm.stage2.zap(&announced, gfns(5, 1), Tables::Keep, WHOLE);
        assert_eq!(root.translate(gfn(5), &here.lock()), None);
        destroyer.join().unwrap();
        drop((root, announced));
        vm.assert_reclaimed();
    });
}

#[test]
fn a_destroyed_vms_root_is_not_freed_under_an_operation_on_a_range() {
    check(|| {
        let (vm, [here, _there]) = rootless(1);
        drop(load(&vm, &here).unwrap());
        vm.stage2.retire();
        let reclaimer = {
            let vm = Arc::clone(&vm);
            thread::spawn(move || vm.config.reclaimer.run_slice(WHOLE))
        };
        vm.stage2.age(gfns(0, 16), WHOLE, |_, _| ());
        reclaimer.join().unwrap();
        vm.assert_reclaimed();
    });
}

/// One of them may make a second root, when the first has been taken away.
#[test]
fn of_two_that_want_a_root_of_a_vm_that_is_destroyed_none_gets_one_that_operations_miss() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    explore(builder, || {
        let (vm, [here, there]) = rootless(2);
        let other = load_in_thread(&vm, there);
        let destroyer = {
            let vm = Arc::clone(&vm);
            thread::spawn(move || vm.stage2.retire())
        };
        let root = load(&vm, &here);
        let other = other.join().unwrap();
        destroyer.join().unwrap();
        for root in [root, other].into_iter().flatten() {
            let section = here.lock();
            assert!(vm.stage2.roots(&section).any(|found| found.is(&root)));
        }
        vm.assert_reclaimed();
    });
}

#[test]
fn an_operation_on_a_range_misses_no_root_that_is_made_meanwhile() {
    check(|| {
        let (vm, [here, there]) = rootless(2);
        let host = Arc::new(AtomicU64::new(OLD));
        let vcpu = {
            let (vm, host) = (Arc::clone(&vm), Arc::clone(&host));
            thread::spawn(move || {
                let root = load(&vm, &there).unwrap();
                let vcpu = Vcpu { vm, root, reader: there };
                vcpu.fault(5, &host);
            })
        };
        {
            let invalidation = vm.stage2.begin_invalidation(&gfns(5, 1));
            host.store(NEW, Ordering::Relaxed);
            vm.stage2.zap(&invalidation, gfns(5, 1), Tables::Keep, WHOLE);
        }
        vcpu.join().unwrap();
        let root = load(&vm, &here).unwrap();
        let found = root.translate(gfn(5), &here.lock());
        assert_ne!(found.map(|(_, leaf)| leaf.pfn), Some(Pfn::new(OLD)));
        drop(root);
        vm.end();
    });
}
