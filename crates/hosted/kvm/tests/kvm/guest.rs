//! What the guest does, and how the host sees it.

use std::io::{Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{MIB, kvm, memory_with_code, ready};
use mayfly_kvm::{Error, Exit, GuestMemory, IoEvent, MemoryFlags, Payload, Vm};

const DOORBELL: u64 = 0xd000_0000;
const PORT: u16 = 0x10;

#[test]
fn each_pass_writes_its_number_to_every_page_of_the_range_and_leaves_through_the_port() {
    let Some(kvm) = kvm() else { return };
    let memory = memory_with_code();
    let touch = MIB..MIB + 16 * 4096;
    let payload = Payload { touch: touch.clone(), doorbell: None, port: PORT };
    let (vm, mut vcpu) = ready(&kvm, &memory, &payload);

    for pass in 1..=3 {
        assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: PORT, value: pass }));
        for page in touch.clone().step_by(4096) {
            assert_eq!(memory.read_u64(page as usize), Ok(pass.into()), "at {page:#x}");
        }
        assert_eq!(memory.read_u64(touch.end as usize), Ok(0), "the page after the range");
    }
    vm.destroy(vec![vcpu]);
}

#[test]
fn a_write_to_an_address_without_memory_is_an_mmio_exit_and_the_next_run_goes_on_after_it() {
    let Some(kvm) = kvm() else { return };
    let memory = memory_with_code();
    let payload = Payload { touch: MIB..MIB + 1, doorbell: Some(DOORBELL), port: PORT };
    let (vm, mut vcpu) = ready(&kvm, &memory, &payload);

    for pass in 1..=2 {
        assert_eq!(vcpu.run_to_exit(), Ok(Exit::MmioWrite { gpa: DOORBELL, value: pass }));
        assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: PORT, value: pass }));
    }
    vm.destroy(vec![vcpu]);
}

#[test]
fn an_ioeventfd_is_signalled_by_the_guests_write_until_it_is_unregistered() {
    let Some(kvm) = kvm() else { return };
    let memory = memory_with_code();
    let payload = Payload { touch: 0..0, doorbell: Some(DOORBELL), port: PORT };
    let (vm, mut vcpu) = ready(&kvm, &memory, &payload);
    let event = IoEvent::new(DOORBELL, 4, None).unwrap();
    let neighbour = IoEvent::new(DOORBELL + 4, 4, None).unwrap();
    vm.register_ioeventfd(&event).unwrap();
    vm.register_ioeventfd(&neighbour).unwrap();

    for pass in 1..=3 {
        assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: PORT, value: pass }));
    }
    assert_eq!(event.take(), Ok(3));
    assert_eq!(event.take(), Ok(0), "taken already");
    assert_eq!(neighbour.take(), Ok(0));

    vm.unregister_ioeventfd(&event).unwrap();
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::MmioWrite { gpa: DOORBELL, value: 4 }));
    assert_eq!(event.take(), Ok(0));
    vm.destroy(vec![vcpu]);
}

#[test]
fn an_ioeventfd_with_a_datamatch_takes_the_matching_write_alone() {
    let Some(kvm) = kvm() else { return };
    let memory = memory_with_code();
    let payload = Payload { touch: 0..0, doorbell: Some(DOORBELL), port: PORT };
    let (vm, mut vcpu) = ready(&kvm, &memory, &payload);
    let second = IoEvent::new(DOORBELL, 4, Some(2)).unwrap();
    vm.register_ioeventfd(&second).unwrap();

    assert_eq!(vcpu.run_to_exit(), Ok(Exit::MmioWrite { gpa: DOORBELL, value: 1 }));
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: PORT, value: 1 }));
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: PORT, value: 2 }));
    assert_eq!(second.take(), Ok(1));
    vm.destroy(vec![vcpu]);
}

#[test]
fn vcpus_on_threads_of_their_own_write_each_to_its_range() {
    let Some(kvm) = kvm() else { return };
    let memory = memory_with_code();
    let vm = Vm::create(&kvm).unwrap();
    vm.create_irqchip().unwrap();
    vm.set_memory_region(0, 0, &memory, MemoryFlags::default()).unwrap();
    let mut vcpus: Vec<_> = (0..2).map(|id| vm.create_vcpu(id).unwrap()).collect();
    vm.finish_irqchip().unwrap();

    std::thread::scope(|scope| {
        for (vcpu, passes) in vcpus.iter_mut().zip([5, 7]) {
            let start = MIB + u64::from(passes) * 4096;
            let payload = Payload { touch: start..start + 4096, doorbell: None, port: PORT };
            scope.spawn(move || {
                vcpu.load(&payload).unwrap();
                for pass in 1..=passes {
                    let left = vcpu.run_to_exit();
                    assert_eq!(left, Ok(Exit::PortWrite { port: PORT, value: pass }));
                }
            });
        }
    });
    assert_eq!(memory.read_u64((MIB + 5 * 4096) as usize), Ok(5));
    assert_eq!(memory.read_u64((MIB + 7 * 4096) as usize), Ok(7));
    vm.destroy(vcpus);
}

#[test]
fn memory_added_while_the_vcpu_exists_is_reached_at_its_next_pass() {
    let Some(kvm) = kvm() else { return };
    let (memory, added) = (memory_with_code(), GuestMemory::map_populated(8192).unwrap());
    let payload = Payload { touch: 0..0, doorbell: Some(DOORBELL), port: PORT };
    let (vm, mut vcpu) = ready(&kvm, &memory, &payload);
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::MmioWrite { gpa: DOORBELL, value: 1 }));
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: PORT, value: 1 }));

    vm.set_memory_region(1, DOORBELL, &added, MemoryFlags::default()).unwrap();
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: PORT, value: 2 }));
    assert_eq!(added.read_u64(0), Ok(2));

    vm.delete_memory_region(1).unwrap();
    assert_eq!(vcpu.run_to_exit(), Ok(Exit::MmioWrite { gpa: DOORBELL, value: 3 }));
    assert_eq!(added.read_u64(0), Ok(2), "what the guest wrote is still the host's");
    vm.destroy(vec![vcpu]);
}

#[test]
fn an_access_that_the_page_tables_do_not_map_is_an_error_that_names_the_exit() {
    let Some(kvm) = kvm() else { return };
    let memory = memory_with_code();
    let payload = Payload { touch: 1 << 32..(1 << 32) + 1, doorbell: None, port: PORT };
    let (vm, mut vcpu) = ready(&kvm, &memory, &payload);
    let Err(Error::Exit(exit)) = vcpu.run_to_exit() else { panic!("no such exit") };
    // A translation fault of a write, at level 1, at the same exception level.
    let expected = ["Shutdown", "an exception at EL1, ESR_EL1 0x96000045"];
    assert_eq!(exit, expected[usize::from(cfg!(target_arch = "aarch64"))]);
    vm.destroy(vec![vcpu]);
}

/// Has a guest that runs beside end when dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_slot_deleted_and_created_again_under_a_running_vcpu_keeps_what_was_written() {
    let Some(kvm) = kvm() else { return };
    for alone in [false, true] {
        let (memory, slot) = (memory_with_code(), GuestMemory::map_populated(8192).unwrap());
        let touch = MIB..MIB + 4 * 4096;
        let payload = Payload { touch: touch.clone(), doorbell: Some(DOORBELL), port: PORT };
        let (vm, mut vcpu) = ready(&kvm, &memory, &payload);
        if alone && vm.zap_deleted_slots_alone().is_err() {
            // Before Linux v6.12.
            vm.destroy(vec![vcpu]);
            continue;
        }
        vm.set_memory_region(1, DOORBELL, &slot, MemoryFlags::default()).unwrap();
        let is_over = AtomicBool::new(false);
        let (vcpu, passes) = std::thread::scope(|scope| {
            let (is_over, _over) = (&is_over, Over(&is_over));
            let running = scope.spawn(move || {
                let mut missed = 0;
                loop {
                    match vcpu.run_to_exit().unwrap() {
                        Exit::MmioWrite { .. } => missed += 1,
                        Exit::PortWrite { value, .. }
                            if value >= 500 && missed > 0 || is_over.load(Ordering::Relaxed) =>
                        {
                            return (vcpu, value);
                        }
                        Exit::DirtyRingFull => panic!("it has no ring"),
                        Exit::PortWrite { .. } => {}
                    }
                }
            });
            while !running.is_finished() {
                vm.delete_memory_region(1).unwrap();
                std::thread::yield_now();
                vm.set_memory_region(1, DOORBELL, &slot, MemoryFlags::default()).unwrap();
            }
            running.join().unwrap()
        });
        for page in touch.step_by(4096) {
            assert_eq!(memory.read_u64(page as usize), Ok(passes.into()), "at {page:#x}");
        }
        assert!(slot.read_u64(0).unwrap() <= passes.into());
        vm.destroy(vec![vcpu]);
    }
}

#[test]
fn kvm_counts_a_vcpus_exits_where_it_counts_at_all() {
    let Some(kvm) = kvm() else { return };
    let memory = memory_with_code();
    let payload = Payload { touch: MIB..MIB + 1, doorbell: None, port: PORT };
    let (vm, mut vcpu) = ready(&kvm, &memory, &payload);
    let counted = match vcpu.statistics() {
        Ok(statistics) => statistics,
        Err(error) => {
            let _ = writeln!(stderr(), "not run: statistics of a vCPU: {error}");
            return;
        }
    };
    assert_eq!(counted.get("exits"), Some(0), "{counted:?}");
    for _ in 0..3 {
        vcpu.run_to_exit().unwrap();
    }
    assert!(vcpu.statistics().unwrap().get("exits").unwrap() >= 3);
    let of_vm = vm.statistics().unwrap();
    assert!(of_vm.get("remote_tlb_flush").is_some(), "{of_vm:?}");
    assert_eq!(of_vm.get("exits"), None, "those are the vCPU's");
}
