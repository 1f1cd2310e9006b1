use super::*;
use mayfly_record::Backend;

#[test]
fn a_registration_that_is_keyed_on_vcpus_is_deferred_while_they_run() {
    // A grace period that nobody hurries takes tenths of a second: it is still there to be seen.
    let (hz, shape) = (10, Shape { devices: 1, vcpus: 1 });
    let mut subject = MachineSubject::new(Disposal::KeyedOnVcpus, hz, shape).unwrap();
    subject.create(Order::DevicesFirst).unwrap();
    subject.register(0).unwrap();
    let deferred = |subject: &MachineSubject| subject.vm().unwrap().srcu().stats().deferred;
    assert_eq!(deferred(&subject), 0, "there is no vCPU yet");
    subject.create_vcpu(0).unwrap();
    subject.prepare().unwrap();
    subject.start_all(shape).unwrap();
    subject.register(1).unwrap();
    assert_eq!(deferred(&subject), 1);
    subject.stop_all().unwrap();
    subject.destroy().unwrap();
}

#[test]
fn a_vcpu_that_misses_its_device_is_told_of_and_not_waited_for() {
    let shape = Shape { devices: 1, vcpus: 2 };
    let mut subject = MachineSubject::new(Disposal::Mayfly, 250, shape).unwrap();
    subject.create(Order::DevicesFirst).unwrap();
    subject.set_memory(0).unwrap();
    (0..shape.vcpus).for_each(|id| subject.create_vcpu(id).unwrap());
    subject.prepare().unwrap();
    let elsewhere = Gpa::new(DOORBELL + 0x1000);
    subject.vcpus[1].1.load(vec![Instruction::WriteMmio { gpa: elsewhere, len: 4, value: 1 }]);
    subject.start_all(shape).unwrap();
    subject.stop_all().unwrap();
    let row = subject.report(ResultRow::new("device-registration", Backend::Machine, "mayfly"));
    assert!(!row.checks[0].ok, "{row:?}");
    subject.destroy().unwrap();
}
