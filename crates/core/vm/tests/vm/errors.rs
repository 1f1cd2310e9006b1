//! What is refused, with KVM's errno; and the VM is as it was.

use std::sync::Arc;

use mayfly_memslot::{Flags, Gpa, Hva, Region, SlotId, USER_SLOTS};
use mayfly_srcu::{Pace, Worker};
use mayfly_vm::{Bus, Config, Error, SlotZap};

use crate::common::{Log, Recorder, Setup, TestVm, eventfd, platform, range, region, same, vm};

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

#[test]
fn a_region_that_cannot_be_is_refused_with_kvms_errno() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    vm.set_memory_region(&region(1, 0x20, 4)).unwrap();
    let before = format!("{:?}", vm.slots());
    let good = region(2, 0x30, 4);
    let refused = [
        ("overlap", region(2, 0x13, 1), EEXIST),
        ("move into another", region(1, 0xf, 4), EEXIST),
        ("misaligned gpa", Region { gpa: Gpa::new(0x3_0001), ..good }, EINVAL),
        ("misaligned size", Region { size: 0x1001, ..good }, EINVAL),
        ("misaligned backing", Region { backing: Hva::new(1), ..good }, EINVAL),
        ("gpa wraps", Region { gpa: Gpa::new(0u64.wrapping_sub(0x1000)), ..good }, EINVAL),
        ("backing wraps", Region { backing: Hva::new(0u64.wrapping_sub(0x1000)), ..good }, EINVAL),
        ("too large", Region { size: 1 << 43, ..good }, EINVAL),
        ("unknown flag", Region { flags: Flags::from_bits_retain(1 << 7), ..good }, EINVAL),
        ("no such slot", Region { size: 0, ..good }, EINVAL),
        ("slot out of range", Region { slot: SlotId::main(USER_SLOTS), ..good }, EINVAL),
        ("no such address space", Region { slot: SlotId::smm(0), ..good }, EINVAL),
        ("other size", region(1, 0x20, 8), EINVAL),
        ("other backing", Region { backing: Hva::new(0), ..region(1, 0x20, 4) }, EINVAL),
        ("made read-only", Region { flags: Flags::READONLY, ..region(1, 0x20, 4) }, EINVAL),
    ];
    for (what, region, errno) in refused {
        let error = vm.set_memory_region(&region).unwrap_err();
        assert!(matches!(error, Error::Memory(_)), "{what}: {error}");
        assert_eq!(error.errno(), errno, "{what}: {error}");
        assert_eq!(format!("{:?}", vm.slots()), before, "{what}");
    }
}

#[test]
fn a_device_that_cannot_be_registered_is_given_back_with_kvms_errno() {
    let vm = vm();
    let log = Log::default();
    for bus in [Bus::Mmio, Bus::Pio] {
        vm.register_device(bus, range(0x100, 8), Recorder::device(1, &log)).unwrap();
        vm.register_eventfd(bus, eventfd(0x100, 4, None), Recorder::device(2, &log)).unwrap();
        let device = Recorder::device(3, &log);
        let ranges = [
            (range(0x200, 0), EINVAL),
            (range(u64::MAX, 2), EINVAL),
            (range(0x107, 2), EEXIST),
            (range(0, u64::MAX), EEXIST),
        ];
        for (range, errno) in ranges {
            let refused = vm.register_device(bus, range, device.clone()).unwrap_err();
            assert_eq!(refused.error.errno(), errno, "{range}");
            assert!(same(&refused.device, &device));
        }
        let eventfds = [
            (eventfd(0x100, 3, None), EINVAL),
            (eventfd(0x200, 0, Some(1)), EINVAL),
            (eventfd(u64::MAX, 2, None), EINVAL),
            (eventfd(0x100, 4, Some(7)), EEXIST),
        ];
        for (on, errno) in eventfds {
            let refused = vm.register_eventfd(bus, on, device.clone()).unwrap_err();
            assert_eq!(refused.error.errno(), errno, "{on}");
            assert!(same(&refused.device, &device));
        }
    }
}

#[test]
fn a_full_bus_takes_no_device_and_the_other_one_does() {
    let vm = vm();
    let log = Log::default();
    let device = Recorder::device(1, &log);
    let at = |index: u64| range(index * 0x10, 0x10);
    for index in 0..1000 {
        vm.register_device(Bus::Pio, at(index), device.clone()).unwrap();
    }
    let refused = vm.register_device(Bus::Pio, at(1000), device.clone()).unwrap_err();
    assert_eq!(refused.error.errno(), ENOSPC);
    vm.register_device(Bus::Mmio, at(1000), device).unwrap();
}

#[test]
fn what_is_not_there_cannot_be_unregistered() {
    let vm = vm();
    let log = Log::default();
    let errno = |result: Result<_, Error>| result.map(|_| ()).unwrap_err().errno();
    vm.register_device(Bus::Mmio, range(0x100, 8), Recorder::device(1, &log)).unwrap();
    let on = eventfd(0x100, 4, Some(1));
    vm.register_eventfd(Bus::Mmio, on, Recorder::device(2, &log)).unwrap();
    assert_eq!(errno(vm.unregister_device(Bus::Pio, range(0x100, 8))), ENOENT);
    assert_eq!(errno(vm.unregister_device(Bus::Mmio, range(0x100, 4))), ENOENT);
    assert_eq!(errno(vm.unregister_eventfd(Bus::Pio, on)), ENOENT);
    assert_eq!(errno(vm.unregister_eventfd(Bus::Mmio, eventfd(0x100, 4, None))), ENOENT);
    vm.unregister_device(Bus::Mmio, range(0x100, 8)).unwrap();
    vm.unregister_eventfd(Bus::Mmio, on).unwrap();
}

#[test]
fn a_vcpus_number_is_below_4096_and_its_own() {
    let vm = vm();
    let _first = vm.create_vcpu(4095).unwrap();
    let errno = |id| vm.create_vcpu(id).map(|_| ()).unwrap_err().errno();
    assert_eq!([4095, 4096, u32::MAX].map(errno), [EEXIST, EINVAL, EINVAL]);
    assert_eq!(vm.vcpu_count(), 1);
}

#[test]
fn a_vm_paced_as_linux_needs_jiffies_and_a_worker() {
    let worker = Arc::new(Worker::new(platform()));
    let create = |hz, with_worker: bool| {
        let worker = with_worker.then(|| worker.clone());
        let srcu = mayfly_srcu::Config { pace: Pace::Linux { hz }, worker, ..Default::default() };
        let config = Config { srcu, ..Setup::new(SlotZap::Range).config() };
        TestVm::create(config).map(|_| ()).map_err(|error| error.errno())
    };
    assert_eq!(create(250, false), Err(EINVAL));
    assert_eq!(create(0, true), Err(EINVAL));
    assert_eq!(create(250, true), Ok(()));
}
