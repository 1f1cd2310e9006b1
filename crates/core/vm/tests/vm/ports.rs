//! x86's I/O ports.

use mayfly_vm::Bus;

use crate::common::{
    Call, Log, Outcome, Recorder, eventfd, mmio_exit, port_exit, range, read, read_port, region,
    vm, write_port,
};

#[test]
fn a_device_on_ports_is_read_and_written() {
    let vm = vm();
    let log = Log::default();
    vm.register_device(Bus::Pio, range(0x3f8, 8), Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read_port(&mut vcpu, 0x3fd, 1), Outcome::Device(vec![1]));
    assert_eq!(write_port(&mut vcpu, 0x3f8, &[2, 3]), Outcome::Device(vec![2, 3]));
    let calls = [
        Call::Read { id: 1, offset: 5, len: 1 },
        Call::Write { id: 1, offset: 0, data: vec![2, 3] },
    ];
    assert_eq!(log.take(), calls);
}

#[test]
fn an_access_to_a_port_that_no_device_has_is_an_exit() {
    let vm = vm();
    let log = Log::default();
    vm.register_device(Bus::Pio, range(0x70, 2), Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read_port(&mut vcpu, 0x72, 1), port_exit(0x72, 1, false));
    assert_eq!(write_port(&mut vcpu, 0x71, &[0; 2]), port_exit(0x71, 2, true));
    assert_eq!(read_port(&mut vcpu, 0xffff, 4), port_exit(0xffff, 4, false));
    assert_eq!(log.take(), []);
}

#[test]
fn ports_and_physical_addresses_have_nothing_to_do_with_each_other() {
    let vm = vm();
    let log = Log::default();
    vm.set_memory_region(&region(0, 0, 1)).unwrap();
    vm.register_device(Bus::Pio, range(0x70, 4), Recorder::device(1, &log)).unwrap();
    vm.register_device(Bus::Mmio, range(0x3000, 4), Recorder::device(2, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read_port(&mut vcpu, 0x70, 4), Outcome::Device(vec![1; 4]));
    assert_eq!(read_port(&mut vcpu, 0x3000, 4), port_exit(0x3000, 4, false));
    assert_eq!(read(&mut vcpu, 0x3000, 4), Outcome::Device(vec![2; 4]));
    vm.unregister_device(Bus::Mmio, range(0x3000, 4)).unwrap();
    assert_eq!(read(&mut vcpu, 0x3000, 4), mmio_exit(0x3000, 4, false));
    assert_eq!(read_port(&mut vcpu, 0x70, 1), Outcome::Device(vec![1]));
}

#[test]
fn a_write_to_a_port_can_signal_an_ioeventfd() {
    let vm = vm();
    let log = Log::default();
    let on = eventfd(0x510, 2, None);
    vm.register_eventfd(Bus::Pio, on, Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(write_port(&mut vcpu, 0x510, &[9, 0]), Outcome::Device(vec![9, 0]));
    assert_eq!(log.take(), [Call::Write { id: 1, offset: 0, data: vec![9, 0] }]);
    assert_eq!(write_port(&mut vcpu, 0x510, &[9]), port_exit(0x510, 1, true));
    assert_eq!(read_port(&mut vcpu, 0x510, 2), port_exit(0x510, 2, false));
}
