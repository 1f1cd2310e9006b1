//! The guest that turns its caches on.

use crate::common::{MIB, kvm_with_guests_of};
use mayfly_kvm::{CacheSwitch, Error, Exit, GuestMemory, MemoryFlags, Vm};

#[test]
fn vcpus_read_with_their_caches_on_what_they_wrote_with_them_off() {
    let Some(kvm) = kvm_with_guests_of("aarch64") else { return };
    let memory = GuestMemory::map(4 << 20).unwrap();
    CacheSwitch::install(&memory).unwrap();
    let vm = Vm::create(&kvm).unwrap();
    vm.set_memory_region(0, 0, &memory, MemoryFlags::default()).unwrap();
    let doorbell = CacheSwitch::doorbell(&memory);
    let mut vcpus = Vec::new();
    for id in 0..3 {
        let early = MIB + u64::from(id) * 0x4000..MIB + u64::from(id + 1) * 0x4000;
        let later = 2 * MIB..2 * MIB + 0x3000;
        let mut vcpu = vm.create_vcpu(id).unwrap();
        vcpu.load_cache_switch(&CacheSwitch {
            early: early.clone(),
            later: later.clone(),
            doorbell,
        })
        .unwrap();
        let left = Ok(Exit::MmioWrite { gpa: doorbell, value: 4 });
        assert_eq!(vcpu.run_to_exit(), left);
        assert_eq!(
            memory.read_u64(later.start as usize),
            Ok(if id == 0 { 0 } else { later.start })
        );
        assert_eq!(vcpu.run_to_exit(), left);
        for page in early.step_by(0x1000).chain(later.step_by(0x1000)) {
            assert_eq!(memory.read_u64(page as usize), Ok(page));
        }
        vcpus.push(vcpu);
    }
    vm.destroy(vcpus);
}

#[test]
fn an_exception_of_that_guest_is_an_exit_as_well() {
    let Some(kvm) = kvm_with_guests_of("aarch64") else { return };
    let memory = GuestMemory::map(2 << 20).unwrap();
    CacheSwitch::install(&memory).unwrap();
    let vm = Vm::create(&kvm).unwrap();
    vm.set_memory_region(0, 0, &memory, MemoryFlags::default()).unwrap();
    let doorbell = CacheSwitch::doorbell(&memory);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    // Past the doorbell's GiB nothing is mapped.
    let later = doorbell + (1 << 30)..doorbell + (1 << 30) + 0x1000;
    let early = MIB..MIB + 0x1000;
    vcpu.load_cache_switch(&CacheSwitch { early, later, doorbell }).unwrap();
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::MmioWrite { gpa: doorbell, value: 1 }));
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::MmioWrite { gpa: doorbell, value: u32::MAX }));
    vm.destroy(vec![vcpu]);
}

#[test]
fn its_code_and_table_fit_below_the_first_free_address_and_not_in_less() {
    let memory = GuestMemory::map(CacheSwitch::FREE as usize).unwrap();
    CacheSwitch::install(&memory).unwrap();
    assert_eq!(CacheSwitch::doorbell(&memory), 1 << 30);
    let less = GuestMemory::map(0x2000).unwrap();
    assert!(matches!(CacheSwitch::install(&less), Err(Error::Memory { .. })));
}

#[test]
fn on_another_architecture_it_cannot_be_loaded() {
    let Some(kvm) = kvm_with_guests_of("x86_64") else { return };
    let vm = Vm::create(&kvm).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let guest = CacheSwitch { early: 0..0, later: 0..0, doorbell: 0 };
    assert_eq!(vcpu.load_cache_switch(&guest), Err(Error::UnsupportedArch("arm64")));
}
