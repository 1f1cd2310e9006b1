//! Writes that only signal.

use mayfly_vm::Bus;

use crate::common::{
    Call, Log, Outcome, Recorder, eventfd, mmio_exit, range, read, same, vm, write,
};

/// An ioeventfd hears of a write at offset 0, wherever it lies.
fn signalled(id: u8, data: &[u8]) -> [Call; 1] {
    [Call::Write { id, offset: 0, data: data.to_vec() }]
}

#[test]
fn a_write_that_an_ioeventfd_matches_does_not_reach_the_device_around_it() {
    let vm = vm();
    let log = Log::default();
    vm.register_device(Bus::Mmio, range(0x1000, 0x100), Recorder::device(1, &log)).unwrap();
    let on = eventfd(0x1050, 4, Some(0x0102_0304));
    vm.register_eventfd(Bus::Mmio, on, Recorder::device(2, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();

    // The datamatch is the value, little-endian, of the bytes written.
    write(&mut vcpu, 0x1050, &[4, 3, 2, 1]);
    assert_eq!(log.take(), signalled(2, &[4, 3, 2, 1]));

    write(&mut vcpu, 0x1050, &[1, 2, 3, 4]);
    write(&mut vcpu, 0x1050, &[4, 3]);
    assert_eq!(read(&mut vcpu, 0x1050, 4), Outcome::Device(vec![1; 4]));
    let calls = [
        Call::Write { id: 1, offset: 0x50, data: vec![1, 2, 3, 4] },
        Call::Write { id: 1, offset: 0x50, data: vec![4, 3] },
        Call::Read { id: 1, offset: 0x50, len: 4 },
    ];
    assert_eq!(log.take(), calls);
}

#[test]
fn an_ioeventfd_without_a_length_is_signalled_by_any() {
    let vm = vm();
    let log = Log::default();
    let on = eventfd(0x1050, 0, None);
    vm.register_eventfd(Bus::Mmio, on, Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for len in [1, 2, 4, 8] {
        let data = vec![7; len];
        assert_eq!(write(&mut vcpu, 0x1050, &data), Outcome::Device(data.clone()));
        assert_eq!(log.take(), signalled(1, &data));
    }
    assert_eq!(write(&mut vcpu, 0x1051, &[7]), mmio_exit(0x1051, 1, true));
    assert_eq!(read(&mut vcpu, 0x1050, 1), mmio_exit(0x1050, 1, false));
}

#[test]
fn an_ioeventfd_that_was_taken_off_signals_no_more_and_is_given_back() {
    let vm = vm();
    let log = Log::default();
    let on = eventfd(0x1050, 8, None);
    let device = Recorder::device(1, &log);
    vm.register_eventfd(Bus::Mmio, on, device.clone()).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    write(&mut vcpu, 0x1050, &[0; 8]);
    assert_eq!(log.take().len(), 1);
    assert!(same(&vm.unregister_eventfd(Bus::Mmio, on).unwrap(), &device));
    assert_eq!(write(&mut vcpu, 0x1050, &[0; 8]), mmio_exit(0x1050, 8, true));
}
