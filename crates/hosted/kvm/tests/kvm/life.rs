//! Creating, changing and ending a VM, and what KVM refuses on the way.

use std::os::fd::AsRawFd;

use crate::common::{kvm, memory_with_code, ready};
use mayfly_kvm::{Error, Exit, GuestMemory, IoEvent, MemoryFlags, Payload, Vm};
use rustix::io::Errno;

const REGION: &str = "KVM_SET_USER_MEMORY_REGION";
const IOEVENTFD: &str = "KVM_IOEVENTFD";

fn refused<T>(call: &'static str, errno: Errno) -> Result<T, Error> {
    Err(Error::Call { call, errno: errno.raw_os_error() })
}

#[test]
fn a_whole_life_works_in_either_order_of_memory_and_devices() {
    let Some(kvm) = kvm() else { return };
    let payload = Payload { touch: 0x10_0000..0x10_1000, doorbell: None, port: 0x10 };
    for devices_first in [true, false] {
        let memory = memory_with_code();
        let event = IoEvent::new(0xd000_0000, 4, None).unwrap();
        let vm = Vm::create(&kvm).unwrap();
        let devices = || {
            vm.create_irqchip().unwrap();
            vm.register_ioeventfd(&event).unwrap();
        };
        let slot = || vm.set_memory_region(0, 0, &memory, MemoryFlags::default()).unwrap();
        if devices_first {
            devices();
            slot();
        } else {
            slot();
            devices();
        }
        let mut vcpus: Vec<_> = (0..2).map(|id| vm.create_vcpu(id).unwrap()).collect();
        vm.finish_irqchip().unwrap();
        for vcpu in &mut vcpus {
            vcpu.load(&payload).unwrap();
            assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: 0x10, value: 1 }));
        }
        vm.unregister_ioeventfd(&event).unwrap();
        assert_eq!(vm.destroy(vcpus).len(), 1);
    }
}

#[test]
fn an_overlapping_memslot_is_refused_with_eexist_and_leaves_the_vm_as_it_was() {
    let Some(kvm) = kvm() else { return };
    let (low, other) = (GuestMemory::map(1 << 20).unwrap(), GuestMemory::map(1 << 20).unwrap());
    let vm = Vm::create(&kvm).unwrap();
    let flags = MemoryFlags::default();
    vm.set_memory_region(0, 0, &low, flags).unwrap();
    assert_eq!(vm.set_memory_region(1, 0xf_f000, &other, flags), refused(REGION, Errno::EXIST));
    assert_eq!(vm.delete_memory_region(1).map(drop), refused(REGION, Errno::INVAL));
    vm.set_memory_region(1, 0x10_0000, &other, flags).unwrap();
    assert_eq!(vm.destroy(Vec::new()).len(), 2);
}

#[test]
fn a_misaligned_memslot_and_another_memory_for_a_slot_in_use_are_refused_with_einval() {
    let Some(kvm) = kvm() else { return };
    let (memory, other) = (GuestMemory::map(8192).unwrap(), GuestMemory::map(8192).unwrap());
    let vm = Vm::create(&kvm).unwrap();
    let flags = MemoryFlags::default();
    assert_eq!(vm.set_memory_region(0, 0x800, &memory, flags), refused(REGION, Errno::INVAL));
    vm.set_memory_region(0, 0, &memory, flags).unwrap();
    assert_eq!(vm.set_memory_region(0, 0, &other, flags), refused(REGION, Errno::INVAL));
}

#[test]
fn a_memslot_moves_and_changes_its_flags_and_is_still_one_slot() {
    let Some(kvm) = kvm() else { return };
    let memory = GuestMemory::map(8192).unwrap();
    let vm = Vm::create(&kvm).unwrap();
    vm.set_memory_region(0, 0, &memory, MemoryFlags::default()).unwrap();
    vm.set_memory_region(0, 0x10_0000, &memory, MemoryFlags::default()).unwrap();
    let logged = MemoryFlags { log_dirty: true, read_only: false };
    vm.set_memory_region(0, 0x10_0000, &memory, logged).unwrap();
    vm.delete_memory_region(0).unwrap();
    assert_eq!(vm.destroy(Vec::new()).len(), 0);
}

#[test]
fn an_ioeventfd_twice_or_of_a_strange_width_or_never_registered_is_refused_by_name() {
    let Some(kvm) = kvm() else { return };
    let vm = Vm::create(&kvm).unwrap();
    let event = IoEvent::new(0xd000_0000, 4, None).unwrap();
    let same = IoEvent::new(0xd000_0000, 4, Some(7)).unwrap();
    let strange = IoEvent::new(0xd000_1000, 3, None).unwrap();
    let any_width = IoEvent::new(0xd000_1000, 0, Some(7)).unwrap();
    let wraps = IoEvent::new(u64::MAX - 2, 4, None).unwrap();
    assert_eq!(vm.unregister_ioeventfd(&event), refused(IOEVENTFD, Errno::NOENT));
    vm.register_ioeventfd(&event).unwrap();
    assert_eq!(vm.register_ioeventfd(&same), refused(IOEVENTFD, Errno::EXIST));
    for event in [&strange, &any_width, &wraps] {
        assert_eq!(vm.register_ioeventfd(event), refused(IOEVENTFD, Errno::INVAL), "{event:?}");
    }
}

#[test]
fn the_irqchip_comes_once_and_before_the_first_vcpu_or_on_arm64_the_last() {
    let Some(kvm) = kvm() else { return };
    let arm64 = cfg!(target_arch = "aarch64");
    let vm = Vm::create(&kvm).unwrap();
    vm.create_irqchip().unwrap();
    let create = if arm64 { "KVM_CREATE_DEVICE" } else { "KVM_CREATE_IRQCHIP" };
    assert_eq!(vm.create_irqchip(), refused(create, Errno::EXIST));
    let early = vm.create_vcpu(0).unwrap();
    vm.finish_irqchip().unwrap();
    let later = vm.create_vcpu(1).map(|later| vm.destroy(vec![early, later]).len());
    let busy = refused("KVM_CREATE_VCPU", Errno::BUSY);
    assert_eq!(later, if Vm::VCPUS_AT_ANY_TIME { Ok(0) } else { busy });

    let late = Vm::create(&kvm).unwrap();
    let vcpu = late.create_vcpu(0).unwrap();
    let created = late.create_irqchip();
    assert_eq!(created, if arm64 { Ok(()) } else { refused(create, Errno::INVAL) });
    assert_eq!(late.create_vcpu(0).map(drop), refused("KVM_CREATE_VCPU", Errno::EXIST));
    late.destroy(vec![vcpu]);
}

#[test]
fn a_vcpu_kept_back_keeps_the_vm_and_its_memory() {
    let Some(kvm) = kvm() else { return };
    let memory = memory_with_code();
    let payload = Payload { touch: 0x10_0000..0x10_1000, doorbell: None, port: 0x10 };
    let (vm, mut vcpu) = ready(&kvm, &memory, &payload);
    drop(memory);
    assert_eq!(vm.destroy(Vec::new()).len(), 0);
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: 0x10, value: 1 }));
}

#[test]
fn accesses_from_the_host_past_the_end_of_guest_memory_are_errors() {
    let memory = GuestMemory::map(4096).unwrap();
    assert_eq!(memory.size(), 4096);
    assert_eq!(memory.read_u64(4088), Ok(0));
    for offset in [4092, 4096, usize::MAX] {
        let error = Error::Memory { offset, size: 4096 };
        assert_eq!(memory.read_u64(offset), Err(error.clone()));
        assert_eq!(memory.write(offset, &[1; 8]), Err(error));
    }
    assert_eq!(GuestMemory::map(0).map(drop), refused("mmap", Errno::INVAL));
    assert_eq!(Payload::install(&memory), Err(Error::Memory { offset: 0x1000, size: 4096 }));
}

#[test]
fn vcpus_that_several_threads_create_are_given_in_order_and_none_where_one_fails() {
    let Some(kvm) = kvm() else { return };
    let vm = Vm::create(&kvm).unwrap();
    let made = vm.create_vcpus(&[5, 0, 3, 1], 3).unwrap();
    let of = |fd: i32| {
        std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap().to_string_lossy().into_owned()
    };
    let names: Vec<String> = made.iter().map(|vcpu| of(vcpu.fd().as_raw_fd())).collect();
    assert_eq!(names, [5, 0, 3, 1].map(|id| format!("anon_inode:kvm-vcpu:{id}")));
    assert!(vm.create_vcpus(&[], 3).unwrap().is_empty());
    let twice = vm.create_vcpus(&[7, 3, 8], 2).map(|_| ());
    assert_eq!(twice, refused("KVM_CREATE_VCPU", Errno::EXIST));
    vm.destroy(made);
}
