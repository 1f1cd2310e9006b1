//! What a device may do while the guest waits for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mayfly_memslot::{Gfn, Gpa};
use mayfly_stage2::Format;
use mayfly_vm::{Access, Bus, Device, Event, Exit, Guest, Requests, Translation};

use crate::common::{
    Call, Log, Outcome, Recorder, TestVm, eventfd, hva, mmio_exit, range, read, read_port, region,
    same, vm, write, write_port,
};

/// A device that does `work` when it is written to.
struct OnWrite<F>(F);

impl<F: Fn() + Send + Sync> Device for OnWrite<F> {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {
        (self.0)();
    }
}

/// Has a guest of `vm` write to a device that does `work`, which is then gone again (it may hold the VM).
fn from_a_handler(vm: &TestVm, work: impl Fn() + Send + Sync + 'static) {
    let here = range(0x9000, 4);
    vm.register_device(Bus::Mmio, here, Arc::new(OnWrite(work))).unwrap();
    let mut vcpu = vm.create_vcpu(99).unwrap();
    assert_eq!(write(&mut vcpu, 0x9000, &[1]), Outcome::Device(vec![1]));
    vm.unregister_device(Bus::Mmio, here).unwrap();
}

#[test]
fn a_device_may_add_to_its_vm_what_waits_for_nobody() {
    let vm = vm();
    let log = Log::default();
    let (inside, added) = (vm.clone(), log.clone());
    from_a_handler(&vm, move || {
        inside.register_device(Bus::Mmio, range(0x1000, 4), Recorder::device(1, &added)).unwrap();
        inside.register_device(Bus::Pio, range(0x70, 2), Recorder::device(2, &added)).unwrap();
        inside.set_memory_region(&region(0, 0x10, 1)).unwrap();
        drop(inside.create_vcpu(5).unwrap());
    });
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0x1000, 4), Outcome::Device(vec![1; 4]));
    assert_eq!(read(&mut vcpu, 0x1_0000, 4), Outcome::Memory(hva(0, 0)));
    assert_eq!(log.take(), [Call::Read { id: 1, offset: 0, len: 4 }]);
}

#[test]
fn a_device_that_is_added_by_a_device_is_found_by_the_same_vcpus_next_access() {
    struct Twice {
        accesses: Vec<u64>,
        reads: Vec<u8>,
        data: [u8; 1],
    }
    impl<F: Format> Guest<F> for Twice {
        fn enter(&mut self, _translation: Translation<F>, _requests: &Requests) -> Event {
            self.reads.push(self.data[0]);
            match self.accesses.pop() {
                None => Event::Halt,
                Some(gpa) => Event::Access(Access::data(Gpa::new(gpa), 1, gpa == 0x9000)),
            }
        }
        fn forget(&mut self, _: Gfn) {}

        fn data(&mut self) -> &mut [u8] {
            &mut self.data
        }

        fn answered(&mut self) {}
    }

    let vm = vm();
    let (inside, log) = (vm.clone(), Log::default());
    let plug = Arc::new(OnWrite(move || {
        inside.register_device(Bus::Mmio, range(0x1000, 4), Recorder::device(6, &log)).unwrap();
    }));
    vm.register_device(Bus::Mmio, range(0x9000, 4), plug).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut guest = Twice { accesses: vec![0x1000, 0x9000], reads: vec![], data: [0] };
    assert_eq!(vcpu.run(&mut guest), Exit::Halt);
    assert_eq!(guest.reads, [0, 0, 6]);
    vm.unregister_device(Bus::Mmio, range(0x9000, 4)).unwrap();
}

#[test]
fn a_device_learns_which_vcpu_it_is_that_accesses_it() {
    #[derive(Default)]
    struct Callers(Mutex<Vec<(char, u32)>>);
    impl Device for Callers {
        fn read(&self, vcpu: u32, _offset: u64, _data: &mut [u8]) {
            self.0.lock().unwrap().push(('r', vcpu));
        }

        fn write(&self, vcpu: u32, _offset: u64, _data: &[u8]) {
            self.0.lock().unwrap().push(('w', vcpu));
        }
    }

    let (vm, callers) = (vm(), Arc::new(Callers::default()));
    vm.register_device(Bus::Mmio, range(0x1000, 8), callers.clone()).unwrap();
    vm.register_device(Bus::Pio, range(0x70, 2), callers.clone()).unwrap();
    vm.register_eventfd(Bus::Mmio, eventfd(0x1000, 2, None), callers.clone()).unwrap();
    let [mut one, mut other] = [7, 4095].map(|id| vm.create_vcpu(id).unwrap());
    read(&mut one, 0x1000, 1);
    write(&mut other, 0x1000, &[1]);
    write(&mut one, 0x1000, &[1; 2]);
    read_port(&mut other, 0x70, 1);
    write_port(&mut one, 0x70, &[1]);
    let expected = [('r', 7), ('w', 4095), ('w', 7), ('r', 4095), ('w', 7)];
    assert_eq!(*callers.0.lock().unwrap(), expected);
}

#[test]
fn a_device_may_kick_the_vcpu_that_called_it_whose_access_is_then_complete() {
    let vm = vm();
    let writes = Arc::new(AtomicUsize::new(0));
    let (inside, counted) = (vm.clone(), writes.clone());
    let here = range(0x9000, 4);
    let device = Arc::new(OnWrite(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        assert!(inside.kick(0));
    }));
    vm.register_device(Bus::Mmio, here, device).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(write(&mut vcpu, 0x9000, &[1]), Outcome::Exit(Exit::Kicked));
    assert_eq!(read(&mut vcpu, 0x9000, 1), Outcome::Device(vec![0]), "it goes on");
    assert_eq!(writes.load(Ordering::Relaxed), 1);
    vm.unregister_device(Bus::Mmio, here).unwrap();
}

#[test]
fn a_device_may_destroy_the_vm_that_called_it() {
    let vm = vm();
    let inside = vm.clone();
    let device = Arc::new(OnWrite(move || inside.clone().destroy()));
    vm.register_device(Bus::Mmio, range(0x9000, 4), device).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(write(&mut vcpu, 0x9000, &[1]), Outcome::Exit(Exit::Kicked));
    assert_eq!(write(&mut vcpu, 0x9000, &[1]), Outcome::Exit(Exit::Kicked));
    vm.unregister_device(Bus::Mmio, range(0x9000, 4)).unwrap();
}

#[test]
fn a_device_is_given_back_when_it_is_unregistered_and_dropped_with_its_vm_otherwise() {
    let vm = vm();
    let log = Log::default();
    let (one, two) = (Recorder::device(1, &log), Recorder::device(2, &log));
    vm.register_device(Bus::Mmio, range(0x1000, 4), one.clone()).unwrap();
    vm.register_device(Bus::Mmio, range(0x1004, 4), two.clone()).unwrap();
    let back = vm.unregister_device(Bus::Mmio, range(0x1000, 4)).unwrap();
    assert!(same(&back, &one));
    assert_eq!([Arc::strong_count(&one), Arc::strong_count(&two)], [2, 2]);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0x1000, 4), mmio_exit(0x1000, 4, false));
    vm.destroy();
    assert_eq!(Arc::strong_count(&two), 2, "the vCPU keeps its VM");
    drop(vcpu);
    assert_eq!(Arc::strong_count(&two), 1);
}
