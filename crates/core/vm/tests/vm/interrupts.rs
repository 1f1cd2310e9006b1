//! vCPUs that only an interrupt brings out. Where none is sent, or one is lost, somebody waits for one for ever; and the
//! test fails when that has lasted.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn, yield_now};

use mayfly_memslot::PAGE_SIZE;
use mayfly_platform::Op;
use mayfly_vm::{Access, Exit, Kicker, Reason, SlotZap};

use crate::common::{
    Deaf, Order, Outcome, Setup, Stop, TestVcpu, TestVm, deleted, ends, hva, joined, read, region,
    top,
};

type Running = JoinHandle<(TestVcpu, Exit)>;

/// Runs `vcpu` with `guest`. Returns when it is in there.
fn run(mut vcpu: TestVcpu, mut guest: Deaf) -> Running {
    let (inside, entered) = channel();
    // Nobody listens any more where it comes back in.
    guest.inside = Box::new(move || inside.send(()).unwrap_or_default());
    let running = spawn(move || {
        let exit = vcpu.run(&mut guest);
        (vcpu, exit)
    });
    entered.recv().unwrap();
    running
}

/// A VM with `count` vCPUs that are in their guests, and what asks things of them. They have accessed the first page of
/// slot 0.
fn running(setup: &Setup, count: u32) -> (TestVm, Vec<Running>, Vec<Kicker>) {
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 1, 1)).unwrap();
    let mut kickers = Vec::new();
    let vcpus = (0..count).map(|id| {
        let vcpu = vm.create_vcpu(id).unwrap();
        kickers.push(vcpu.kicker());
        let mut guest = Deaf::new(&setup.hardware, id + 3);
        guest.access = Some(Access::data(region(0, 1, 1).gpa, 8, false));
        run(vcpu, guest)
    });
    let vcpus = vcpus.collect();
    (vm, vcpus, kickers)
}

#[test]
fn a_kick_brings_one_vcpu_out() {
    ends(|| {
        let setup = Setup::new(SlotZap::Range);
        let (vm, mut vcpus, kickers) = running(&setup, 3);
        let (second, first) = (vcpus.remove(1), vcpus.remove(0));
        assert!(vm.kick(1));
        assert_eq!(joined(second).1, Exit::Kicked);
        kickers[0].kick();
        assert_eq!(joined(first).1, Exit::Kicked);
        assert!(!vcpus[0].is_finished(), "nobody has asked it");
        kickers[2].kick();
        assert_eq!(joined(vcpus.remove(0)).1, Exit::Kicked);
    });
}

#[test]
fn replacing_all_roots_brings_every_vcpu_out_once_and_back_in() {
    ends(|| {
        let setup = Setup::new(SlotZap::AllRoots);
        let (vm, vcpus, kickers) = running(&setup, 3);
        vm.set_memory_region(&region(1, 8, 1)).unwrap();
        vm.set_memory_region(&deleted(region(1, 8, 1))).unwrap();
        kickers.iter().for_each(Kicker::kick);
        let mut tops = vcpus.into_iter().map(|vcpu| {
            let (mut vcpu, exit) = joined(vcpu);
            assert_eq!(exit, Exit::Kicked, "it went on before");
            top(&mut vcpu)
        });
        let first = tops.next().unwrap();
        assert!(tops.all(|top| top == first), "all are on the new root");
    });
}

#[test]
fn releasing_the_memory_brings_every_vcpu_out_for_good() {
    ends(|| {
        let setup = Setup::new(SlotZap::Range);
        let (vm, vcpus, _) = running(&setup, 3);
        vm.release();
        for vcpu in vcpus {
            assert_eq!(joined(vcpu).1, Exit::Kicked);
        }
    });
}

#[test]
fn so_does_destroying_the_vm() {
    ends(|| {
        let setup = Setup::new(SlotZap::Range);
        let (vm, vcpus, _) = running(&setup, 3);
        vm.destroy();
        for vcpu in vcpus {
            assert_eq!(joined(vcpu).1, Exit::Kicked);
        }
        assert!(setup.reclaim());
        assert_eq!(setup.hardware.live(), 0);
    });
}

/// A vCPU that has come out of a VM that is being destroyed, and is run again before the others have, stays out.
#[test]
fn a_vcpu_that_destroying_has_brought_out_does_not_go_in_again_while_others_are_asked() {
    ends(|| {
        let setup = Setup::new(SlotZap::Range);
        let (vm, mut vcpus, kickers) = running(&setup, 2);
        let first = vcpus.remove(0);
        let hardware = setup.hardware.clone();
        let comes_back_in = Arc::new(Mutex::new(None));
        let run_again = {
            let (hardware, comes_back_in) = (hardware.clone(), comes_back_in.clone());
            let (mut first, kicker) = (Some(first), kickers[0].clone());
            move || {
                let (mut vcpu, exit) = joined(first.take().unwrap());
                assert_eq!(exit, Exit::Kicked);
                let mut guest = Deaf::new(&hardware, 3);
                let (inside, entered) = channel();
                guest.inside = Box::new({
                    let kicker = kicker.clone();
                    move || {
                        inside.send(()).unwrap();
                        kicker.kick();
                    }
                });
                vcpu.run(&mut guest);
                // Dropped later: who is dropped takes the lock that is held here.
                *comes_back_in.lock().unwrap() = Some((entered.try_recv().is_ok(), vcpu));
            }
        };
        // The first interrupt is the first vCPU's. When the second is about to be sent, nobody asks the first any more.
        setup.hardware.at_next_interrupt({
            let mut run_again = Some(run_again);
            move || hardware.at_next_interrupt(run_again.take().unwrap())
        });
        vm.destroy();
        assert_eq!(joined(vcpus.remove(0)).1, Exit::Kicked);
        let (comes_back_in, _) = comes_back_in.lock().unwrap().take().unwrap();
        assert!(!comes_back_in);
    });
}

#[test]
fn an_interrupt_that_comes_before_the_guest_is_entered_is_not_lost() {
    ends(|| {
        let setup = Setup::new(SlotZap::AllRoots);
        let vm = setup.vm();
        let order = Order::default();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        let kicker = vcpu.kicker();
        let (stop, stopped) = Stop::new(&order);
        let mut guest = Deaf::new(&setup.hardware, 0);
        guest.unmasked = Some(stop);
        let running = spawn(move || vcpu.run(&mut guest));
        stopped.wait();
        kicker.kick();
        stopped.go_on();
        assert_eq!(joined(running), Exit::Kicked);
    });
}

#[test]
fn what_the_embedder_asks_comes_back_together_and_after_a_kick() {
    ends(|| {
        let setup = Setup::new(SlotZap::Range);
        let (_vm, mut vcpus, kickers) = running(&setup, 1);
        kickers[0].ask(0x8001);
        let (mut vcpu, exit) = joined(vcpus.remove(0));
        assert_eq!(exit, Exit::Asked(0x8001));
        kickers[0].ask(0);
        assert!(!vcpu.requests().any(), "that asks nothing");
        for bits in [1, 2, 1] {
            kickers[0].ask(bits);
        }
        kickers[0].kick();
        let mut guest = Deaf::new(&setup.hardware, 0);
        assert_eq!([vcpu.run(&mut guest), vcpu.run(&mut guest)], [Exit::Kicked, Exit::Asked(3)]);
        assert_eq!(read(&mut vcpu, 0x1000, 8), Outcome::Memory(hva(0, 0)), "and then goes on");
    });
}

#[test]
fn a_handler_that_interrupts_whoever_holds_the_vms_locks_can_ask() {
    ends(|| {
        let setup = Setup::new(SlotZap::Range);
        let (vm, mut vcpus, kickers) = running(&setup, 1);
        let kicker = Mutex::new(kickers);
        setup.hardware.at_next_interrupt(move || {
            kicker.lock().unwrap().drain(..).for_each(|kicker| {
                kicker.ask(4);
                kicker.clone().kick();
            });
        });
        vm.kick(0);
        let (mut vcpu, exit) = joined(vcpus.remove(0));
        let mut exits = vec![exit];
        while vcpu.requests().any() {
            exits.push(vcpu.run(&mut Deaf::new(&setup.hardware, 0)));
        }
        assert!(exits.contains(&Exit::Asked(4)) && exits.contains(&Exit::Kicked), "{exits:?}");
    });
}

#[test]
fn what_is_asked_of_a_vcpu_that_is_gone_is_lost() {
    ends(|| {
        let setup = Setup::new(SlotZap::Range);
        let vm = setup.vm();
        let gone = vm.create_vcpu(0).unwrap().kicker();
        gone.kick();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        gone.kick();
        gone.ask(1);
        assert!(!vcpu.requests().any(), "the number is another's");
        assert_eq!(read(&mut vcpu, 0x1000, 8), crate::common::mmio_exit(0x1000, 8, false));
        drop((vcpu, vm));
        let (other, hardware) = (gone.clone(), Arc::downgrade(&setup.hardware));
        drop(gone);
        other.kick();
        drop(setup);
        other.kick();
        assert!(hardware.upgrade().is_some(), "whom it calls is there as long as it is");
    });
}

/// Has a vCPU wait for the host to be done with a page, while `call` is made; the host is not done before the vCPU has
/// come out. Returns why it has, and it.
fn out_of_a_wait(call: impl FnOnce(&TestVm, Kicker)) -> (TestVcpu, Outcome) {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 1, 1)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let kicker = vcpu.kicker();
    let invalidation = vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Migrate);
    let waits = setup.hardware.waits();
    let running = spawn(move || {
        let outcome = read(&mut vcpu, 0x1000, 8);
        (vcpu, outcome)
    });
    while setup.hardware.waits() == waits {
        assert!(!running.is_finished(), "it did not wait");
        yield_now();
    }
    call(&vm, kicker);
    let (vcpu, outcome) = joined(running);
    drop(invalidation);
    (vcpu, outcome)
}

#[test]
fn a_vcpu_that_waits_for_the_host_comes_out_when_it_is_asked() {
    ends(|| {
        let (mut vcpu, outcome) = out_of_a_wait(|vm, _| assert!(vm.kick(0)));
        assert_eq!(outcome, Outcome::Exit(Exit::Kicked));
        assert_eq!(
            read(&mut vcpu, 0x1000, 8),
            Outcome::Memory(hva(0, 0)),
            "the access is made again"
        );
        let (_, outcome) = out_of_a_wait(|_, kicker| kicker.ask(2));
        assert_eq!(outcome, Outcome::Exit(Exit::Asked(2)));
    });
}

#[test]
fn a_vcpu_that_waits_for_the_host_comes_out_when_its_vm_ends() {
    ends(|| {
        for end in [|vm: &TestVm| vm.clone().destroy(), |vm: &TestVm| vm.release()] {
            let (_, outcome) = out_of_a_wait(|vm, _| end(vm));
            assert_eq!(outcome, Outcome::Exit(Exit::Kicked));
        }
    });
}

#[test]
fn a_wait_that_ends_early_is_no_refusal_and_goes_on_until_the_host_is_done() {
    ends(|| {
        let setup = Setup::new(SlotZap::Range);
        setup.hardware.end_waits_early();
        let vm = setup.vm();
        vm.set_memory_region(&region(0, 1, 1)).unwrap();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        let invalidation = vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Migrate);
        let waits = setup.hardware.waits();
        let running = spawn(move || read(&mut vcpu, 0x1000, 8));
        while setup.hardware.waits() < waits + 100 {
            assert!(!running.is_finished(), "it did not wait");
            yield_now();
        }
        assert_eq!(setup.hardware.charged(Op::FaultRefused), 1);
        drop(invalidation);
        assert_eq!(joined(running), Outcome::Memory(hva(0, 0)));
    });
}
