//! VMs made by the builder.

use std::sync::Arc;

use mayfly_kvm::vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use mayfly_kvm::{
    Backing, Error, Exit, HugePages, IoEvent, IrqFd, Irqchip, Payload, Reclaimer, Step, VmBuilder,
    Waits,
};
use rustix::io::Errno;

use crate::common::{MIB, kvm, memory_with_code};

const SIZE: usize = 4 << 20;

#[test]
fn a_vm_with_everything_runs_and_ends_in_the_background() {
    let Some(kvm) = kvm() else { return };
    let waits = [Waits::default(), Waits::default().creating_vcpus(true)];
    let chips = [Irqchip::Full, Irqchip::Split];
    for (waits, irqchip) in waits.iter().flat_map(|waits| chips.map(|chip| (waits, chip))) {
        if irqchip == Irqchip::Split && cfg!(target_arch = "aarch64") {
            continue;
        }
        let code = memory_with_code();
        let more = Backing::Memfd.map(&[(16 * MIB, SIZE), (32 * MIB, SIZE)], None).unwrap();
        let doorbell = IoEvent::new(0xd000_0000, 4, None).unwrap();
        let builder = VmBuilder::new(&kvm, waits).irqchip(irqchip).vcpus(5).region(0, &code);
        let builder = builder.memory(&more).unwrap().ioeventfd(doorbell);
        let builder = builder.irqfd(IrqFd::new(5).unwrap());
        let mut built = builder.start().unwrap();
        assert_eq!(built.plan.steps().len(), 5);
        let timed: Vec<Step> = built.timeline.steps().iter().map(|(step, _)| *step).collect();
        assert_eq!(timed, built.plan.steps());
        let touch = 32 * MIB..32 * MIB + 0x1000;
        let payload = Payload { touch, doorbell: Some(0xd000_0000), port: 0x10 };
        for vcpu in &mut built.vcpus {
            vcpu.load(&payload).unwrap();
            assert_eq!(vcpu.run_to_exit(), Ok(Exit::PortWrite { port: 0x10, value: 1 }));
        }
        assert_eq!(built.ioeventfds[0].take(), Ok(5));
        assert_eq!(more.read_obj::<u64>(GuestAddress(32 * MIB)).unwrap(), 1);
        let mapping = Arc::downgrade(&more.iter().next().unwrap().get_mmap());
        drop(more);
        assert!(mapping.upgrade().is_some(), "the guest has it");
        let reclaimer = Reclaimer::new(1);
        built.teardown(&reclaimer).wait();
        assert!(mapping.upgrade().is_none(), "it is freed with the guest");
    }
}

#[test]
fn a_reclaimer_with_enough_before_it_has_the_caller_end_the_vm() {
    let Some(kvm) = kvm() else { return };
    let waits = Waits::default();
    let reclaimer = Reclaimer::new(2);
    let endings: Vec<_> = (0..200)
        .map(|_| VmBuilder::new(&kvm, &waits).vcpus(1).start().unwrap().teardown(&reclaimer))
        .collect();
    for ending in endings {
        assert!(ending.is_in_background() || ending.is_over());
        ending.wait();
    }
}

#[test]
fn a_vcpu_that_is_kept_back_keeps_the_vm_and_its_memory() {
    let Some(kvm) = kvm() else { return };
    let waits = Waits::default();
    let memory = Backing::Anonymous.map(&[(0, SIZE)], None).unwrap();
    let builder = VmBuilder::new(&kvm, &waits).vcpus(2).memory(&memory).unwrap();
    let mut built = builder.start().unwrap();
    let kept = built.vcpus.pop();
    let mapping = Arc::downgrade(&memory.iter().next().unwrap().get_mmap());
    drop(memory);
    built.teardown(&Reclaimer::new(1)).wait();
    assert!(mapping.upgrade().is_some());
    drop(kept);
    assert!(mapping.upgrade().is_none());
}

#[test]
fn what_kvm_refuses_is_named_by_its_call_and_leaves_nothing() {
    let Some(kvm) = kvm() else { return };
    let waits = Waits::default();
    let called = |call, errno: Errno| Error::Call { call, errno: errno.raw_os_error() };
    let twice = || IoEvent::new(0xd000_0000, 4, None).unwrap();
    let failed = VmBuilder::new(&kvm, &waits).ioeventfd(twice()).ioeventfd(twice()).start();
    assert_eq!(failed.map(drop), Err(called("KVM_IOEVENTFD", Errno::EXIST)));
    let over = Backing::Anonymous.map(&[(0, SIZE)], None).unwrap();
    let builder = VmBuilder::new(&kvm, &waits).memory(&over).unwrap().memory(&over).unwrap();
    assert_eq!(builder.start().map(drop), Err(called("KVM_SET_USER_MEMORY_REGION", Errno::EXIST)));
    if cfg!(target_arch = "x86_64") {
        let split = VmBuilder::new(&kvm, &waits).irqchip(Irqchip::Split).pit(true).start();
        assert!(matches!(split, Err(Error::Call { call: "KVM_CREATE_PIT2", .. })), "{split:?}");
    }
}

#[test]
fn memory_of_each_kind_holds_what_is_written_and_bad_ranges_are_errors() {
    for backing in [Backing::Anonymous, Backing::Memfd] {
        let Ok(memory) = backing.map(&[(0, SIZE), (MIB << 4, SIZE)], Some(HugePages::Wanted))
        else {
            // A kernel without huge pages.
            continue;
        };
        memory.write_obj(7u64, GuestAddress(MIB << 4)).unwrap();
        assert_eq!(memory.read_obj::<u64>(GuestAddress(MIB << 4)).unwrap(), 7);
        let region = memory.iter().next().unwrap().get_mmap();
        assert_eq!(region.file_offset().is_some(), backing == Backing::Memfd);
    }
    let map = |ranges: &[(u64, usize)]| Backing::Anonymous.map(ranges, None).map(drop);
    assert_eq!(map(&[(0, SIZE), (MIB, SIZE)]), Err(Error::Ranges), "they overlap");
    assert_eq!(map(&[(MIB << 4, SIZE), (0, SIZE)]), Err(Error::Ranges), "out of order");
    assert_eq!(map(&[(u64::MAX, SIZE)]), Err(Error::Ranges), "past the end");
    assert!(map(&[(0, 0)]).is_err());
    assert!(map(&[(0, usize::MAX)]).is_err());
    let most = usize::MAX >> 17;
    let huge = Backing::HugeTlb.map(&[(0, most & !(SIZE - 1))], None).map(drop);
    assert!(
        matches!(huge, Err(Error::Call { call: "mmap", .. })),
        "as few are set aside: {huge:?}"
    );
}

#[test]
fn memory_of_any_kind_is_taken_for_a_promise() {
    let Some(kvm) = kvm() else { return };
    let waits = Waits::default();
    let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), SIZE)]).unwrap();
    // SAFETY: a `GuestMemoryMmap` has its mapping as long as it exists, and gives volatile accesses only.
    let builder = unsafe { VmBuilder::new(&kvm, &waits).memory_of(memory) }.unwrap();
    let built = builder.start().unwrap();
    assert_eq!(built.plan.steps(), [Step::Memory]);
}
