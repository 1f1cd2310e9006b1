//! What others ask of a vCPU, and what becomes of it.

use std::sync::mpsc::channel;

use mayfly_memslot::Gfn;
use mayfly_stage2::Format;
use mayfly_vm::{Error, Event, Exit, Guest, Requests, Translation};

use crate::common::{Sleeper, TestVm, joined, region, vm};

/// A guest that comes out with each of these, the last one first, and counts how often it is entered.
struct Script {
    events: Vec<Event>,
    entries: usize,
}

impl Script {
    fn new(events: &[Event]) -> Self {
        Self { events: events.to_vec(), entries: 0 }
    }
}

impl<F: Format> Guest<F> for Script {
    fn enter(&mut self, _translation: Translation<F>, requests: &Requests) -> Event {
        assert!(!requests.any(), "the guest is not entered with a request unseen");
        self.entries += 1;
        self.events.pop().unwrap()
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut []
    }

    fn answered(&mut self) {}
}

#[test]
fn what_the_embedder_comes_out_with_is_its_own_to_see() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut guest = Script::new(&[Event::Halt, Event::Custom(0), Event::Custom(u64::MAX)]);
    let exits = [(); 3].map(|()| vcpu.run(&mut guest));
    assert_eq!(exits, [Exit::Custom(u64::MAX), Exit::Custom(0), Exit::Halt]);
    assert_eq!(guest.entries, 3);
}

#[test]
fn a_kick_before_the_run_ends_it_before_the_guest_is_entered_once() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(3).unwrap();
    let mut guest = Script::new(&[Event::Halt]);
    assert!(vm.kick(3));
    assert!(vm.kick(3));
    assert!(vcpu.requests().any());
    assert_eq!((vcpu.run(&mut guest), guest.entries), (Exit::Kicked, 0));
    assert!(!vcpu.requests().any());
    assert_eq!((vcpu.run(&mut guest), guest.entries), (Exit::Halt, 1));
}

#[test]
fn a_kick_reaches_the_vcpu_it_names_and_no_other() {
    let vm = vm();
    let mut vcpus = [0, 1, 4095].map(|id| vm.create_vcpu(id).unwrap());
    assert!(vm.kick(1));
    assert!(!vm.kick(2));
    let exits = vcpus.each_mut().map(|vcpu| vcpu.run(&mut Script::new(&[Event::Halt])));
    assert_eq!(exits, [Exit::Halt, Exit::Kicked, Exit::Halt]);
}

#[test]
fn a_kick_wakes_a_vcpu_that_sleeps() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let (entered, entries) = channel();
    let running = std::thread::spawn(move || vcpu.run(&mut Sleeper(entered)));
    entries.recv().unwrap();
    assert!(vm.kick(0));
    assert_eq!(joined(running), Exit::Kicked);
    assert!(entries.recv().is_err(), "it was entered once");
}

#[test]
fn a_guest_that_comes_out_for_a_request_that_is_gone_goes_back_in() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut guest = Script::new(&[Event::Halt, Event::Request, Event::Request]);
    assert_eq!((vcpu.run(&mut guest), guest.entries), (Exit::Halt, 3));
}

#[test]
fn destroying_a_vm_brings_every_vcpu_out_wherever_it_is() {
    let vm = vm();
    let mut outside = vm.create_vcpu(0).unwrap();
    let (entered, entries) = channel();
    let running: Vec<_> = (1..5)
        .map(|id| {
            let mut vcpu = vm.create_vcpu(id).unwrap();
            let entered = entered.clone();
            std::thread::spawn(move || {
                let exit = vcpu.run(&mut Sleeper(entered));
                (vcpu, exit)
            })
        })
        .collect();
    for _ in &running {
        entries.recv().unwrap();
    }
    vm.destroy();
    for vcpu in running {
        let (mut vcpu, exit) = joined(vcpu);
        assert_eq!(exit, Exit::Kicked);
        never_entered(&mut vcpu);
    }
    never_entered(&mut outside);
}

/// No matter how often it is run.
fn never_entered(vcpu: &mut crate::common::TestVcpu) {
    let mut guest = Script::new(&[]);
    for _ in 0..3 {
        assert_eq!((vcpu.run(&mut guest), guest.entries), (Exit::Kicked, 0));
    }
}

#[test]
fn a_destroyed_vm_is_one_for_all_its_handles() {
    let vm = vm();
    let other = vm.clone();
    let mut early = vm.create_vcpu(0).unwrap();
    vm.destroy();
    other.set_memory_region(&region(0, 0, 1)).unwrap();
    never_entered(&mut early);
    let late = other.create_vcpu(1).map(|_| ()).unwrap_err();
    assert_eq!(late, Error::Stage2(mayfly_stage2::Error::Destroyed));
    assert_eq!((late.errno(), other.vcpu_count(), other.kick(1)), (5, 1, false));
}

#[test]
fn a_vcpu_that_is_dropped_leaves_its_number_and_is_kicked_no_more() {
    let vm = vm();
    let first = vm.create_vcpu(7).unwrap();
    vm.kick(7);
    drop(first);
    assert_eq!((vm.vcpu_count(), vm.kick(7)), (0, false));
    let mut second = vm.create_vcpu(7).unwrap();
    assert_eq!(second.run(&mut Script::new(&[Event::Halt])), Exit::Halt);
}

#[test]
fn vcpus_come_and_go_in_any_order() {
    let vm: TestVm = vm();
    let mut vcpus: Vec<_> = [5, 1, 9, 3].map(|id| Some(vm.create_vcpu(id).unwrap())).into();
    for (gone, left) in [(1, [true, false, true, true]), (3, [true, false, true, false])] {
        vcpus[gone] = None;
        assert_eq!([5, 1, 9, 3].map(|id| vm.kick(id)), left);
    }
    assert_eq!(vm.vcpu_count(), 2);
    assert!(vcpus.iter().flatten().all(|vcpu| vcpu.requests().any()));
}
