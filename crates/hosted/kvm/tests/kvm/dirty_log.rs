//! The log of what a guest writes, in bitmaps and in rings.

use std::ops::Range;

use mayfly_kvm::{DirtyRing, Error, Exit, GuestMemory, Kvm, MemoryFlags, Payload, Vcpu, Vm};

use crate::common::{kvm, memory_with_code};

/// Where the slot is that is logged.
const GPA: u64 = 1 << 30;
const LOGGED: MemoryFlags = MemoryFlags { read_only: false, log_dirty: true };

/// A VM that has been made ready by `ready`, whose guest writes pages 1, 2 and 3 of a slot of 70, and 69.
fn logging(
    kvm: &Kvm,
    ready: impl FnOnce(&Vm) -> Result<(), Error>,
) -> Option<(Vm, Vcpu, GuestMemory)> {
    logging_of(kvm, 70, 1..4, ready)
}

/// The same of a slot of `pages`, of which the guest writes `touched`, and the last.
fn logging_of(
    kvm: &Kvm,
    pages: u64,
    touched: Range<u64>,
    ready: impl FnOnce(&Vm) -> Result<(), Error>,
) -> Option<(Vm, Vcpu, GuestMemory)> {
    let vm = Vm::create(kvm).unwrap();
    if let Err(Error::Call { .. }) = ready(&vm) {
        return None;
    }
    let (code, memory) = (memory_with_code(), GuestMemory::map(pages as usize * 4096).unwrap());
    vm.set_memory_region(0, 0, &code, MemoryFlags::default()).unwrap();
    vm.set_memory_region(1, GPA, &memory, LOGGED).unwrap();
    vm.create_irqchip().unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.finish_irqchip().unwrap();
    let gpa = |page: u64| GPA + page * 4096;
    let touch = gpa(touched.start)..gpa(touched.end);
    vcpu.load(&Payload { touch, doorbell: Some(gpa(pages - 1)), port: 0x10 }).unwrap();
    Some((vm, vcpu, memory))
}

fn pass(vcpu: &mut Vcpu) {
    assert!(matches!(vcpu.run_to_exit(), Ok(Exit::PortWrite { .. })));
}

const WRITTEN: [u64; 2] = [0b1110, 1 << 5];

#[test]
fn a_bitmap_has_what_was_written_and_is_empty_when_it_was_read() {
    let Some(kvm) = kvm() else { return };
    let (vm, mut vcpu, _memory) = logging(&kvm, |_| Ok(())).unwrap();
    let mut words = [!0; 2];
    vm.dirty_log(1, &mut words).unwrap();
    assert_eq!(words, [0; 2]);
    for _ in 0..2 {
        pass(&mut vcpu);
        vm.dirty_log(1, &mut words).unwrap();
        assert_eq!(words, WRITTEN);
    }
    vm.dirty_log(1, &mut words).unwrap();
    assert_eq!(words, [0; 2]);
    for (slot, count) in [(1, 1), (1, 3), (2, 2)] {
        let said = vm.dirty_log(slot, &mut vec![0; count]).unwrap_err().to_string();
        assert!(said.contains("KVM_GET_DIRTY_LOG"), "{said}");
    }
    assert!(vm.dirty_log(0, &mut [0; 8]).is_err(), "it has no log");
    assert!(vm.reset_dirty_rings().is_err(), "there are none");
}

#[test]
fn bits_that_are_taken_out_manually_stay_until_then() {
    let Some(kvm) = kvm() else { return };
    for initially_set in [false, true] {
        let ready = |vm: &Vm| vm.protect_manually(initially_set);
        let Some((vm, mut vcpu, _memory)) = logging(&kvm, ready) else { continue };
        let mut words = [0; 2];
        vm.dirty_log(1, &mut words).unwrap();
        assert_eq!(words, if initially_set { [!0, (1 << 6) - 1] } else { [0; 2] });
        let mut all = [!0; 2];
        vm.clear_dirty_log(1, 0, &mut all).unwrap();
        pass(&mut vcpu);
        for _ in 0..2 {
            vm.dirty_log(1, &mut words).unwrap();
            assert_eq!(words, WRITTEN);
        }
        vm.clear_dirty_log(1, 64, &mut [!0]).unwrap();
        vm.clear_dirty_log(1, 0, &mut [0b100]).unwrap();
        vm.dirty_log(1, &mut words).unwrap();
        assert_eq!(words, [0b1010, 0]);
        assert!(vm.clear_dirty_log(1, 128, &mut [!0]).is_err(), "past its end");
        assert!(vm.clear_dirty_log(3, 0, &mut [!0]).is_err(), "no such slot");
    }
}

#[test]
fn a_ring_has_what_its_vcpu_has_written_and_has_it_again_when_it_was_reset() {
    const ENTRIES: u32 = 1024;
    let Some(kvm) = kvm() else { return };
    let Some((vm, mut vcpu, _memory)) = logging(&kvm, |vm| vm.log_in_rings(ENTRIES)) else {
        return;
    };
    let mut ring = DirtyRing::map(&vcpu, ENTRIES).unwrap();
    for _ in 0..2 {
        pass(&mut vcpu);
        let mut found = Vec::new();
        ring.collect(|slot, page| found.push((slot, page)));
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3, 69].map(|page| (1, page)));
        ring.collect(|_, _| panic!("it was collected"));
        vm.reset_dirty_rings().unwrap();
    }
    assert!(vm.dirty_log(1, &mut [0; 2]).is_err(), "there is no bitmap");
    drop(ring);
    assert_eq!(vm.destroy(vec![vcpu]).len(), 2);
}

#[test]
fn a_ring_of_several_pages_has_all_that_was_written_and_goes_on_at_its_beginning() {
    const ENTRIES: u32 = 1024;
    let Some(kvm) = kvm() else { return };
    let ready = |vm: &Vm| vm.log_in_rings(ENTRIES);
    let Some((vm, mut vcpu, _memory)) = logging_of(&kvm, 700, 1..600, ready) else { return };
    let mut ring = DirtyRing::map(&vcpu, ENTRIES).unwrap();
    for _ in 0..3 {
        pass(&mut vcpu);
        let mut found = Vec::new();
        ring.collect(|_, page| found.push(page));
        found.sort_unstable();
        assert!(found.iter().copied().eq((1..600).chain([699])), "{found:?}");
        vm.reset_dirty_rings().unwrap();
    }
}
