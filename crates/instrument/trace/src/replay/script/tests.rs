use super::*;
use crate::record::{Call, Object, Recorder};

/// A call of a VM's, with arguments.
pub(crate) fn call(name: &str, at: u64, arguments: &[(&str, u64)]) -> Call {
    let on = if name == "KVM_CREATE_VM" { Object::Kvm } else { Object::Vm { vm: 0 } };
    let on = if name == "KVM_RUN" { Object::Vcpu { vm: 0, id: 0 } } else { on };
    Call {
        tid: 1,
        pid: 1,
        at,
        took: Some(10),
        name: name.into(),
        on: Some(on),
        arguments: arguments.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        result: Some(0),
        ..Call::default()
    }
}

pub(crate) fn slot(at: u64, slot: u64, guest: u64, size: u64) -> Call {
    call("KVM_SET_USER_MEMORY_REGION", at, &[("slot", slot), ("guest", guest), ("size", size)])
}

const GIB: u64 = 1 << 30;

pub(crate) fn trace(calls: Vec<Call>) -> Trace {
    let thread = crate::record::Thread { tid: 1, pid: 1, vcpu: true, ..Default::default() };
    Trace { calls, threads: vec![thread], span: 10_000, ..Trace::default() }
}

fn acts(script: &Script) -> Vec<Act> {
    script.steps.iter().map(|step| step.act.clone()).collect()
}

#[test]
fn a_life_is_read_in_its_order_with_what_passed_between() {
    let calls = vec![
        call("KVM_CREATE_VM", 100, &[("vm", 0)]),
        call("KVM_CREATE_IRQCHIP", 200, &[]),
        slot(300, 0, 0, GIB),
        call("KVM_CREATE_VCPU", 400, &[("id", 0)]),
        call("KVM_SET_REGS", 450, &[]),
        call("KVM_RUN", 500, &[]),
        call("KVM_IOEVENTFD", 600, &[("address", 16), ("length", 2), ("eventfd", 9)]),
        call("close", 9_000, &[]),
    ];
    let script = Script::of(&trace(calls)).unwrap();
    let parts: Vec<Part> = script.steps.iter().map(|step| step.part).collect();
    let event = IoEvent { address: 16, length: 2, value: None, is_port: false, eventfd: 9 };
    let expected = [
        Act::CreateVm,
        Act::Irqchip,
        Act::Slot { slot: 0, guest: 0, size: GIB, flags: 0 },
        Act::Vcpu(0),
        Act::Run(0),
        Act::IoEvent(event, Change::Comes),
    ];
    assert_eq!(acts(&script), expected);
    assert_eq!(parts[..5], [Part::Start; 5]);
    assert_eq!(parts[5], Part::Close);
    // From the end of the one before, what is left out among it.
    let pauses: Vec<u64> = script.steps.iter().map(|step| step.pause).collect();
    assert_eq!(pauses, [0, 90, 90, 90, 90, 90]);
    assert_eq!(script.before_close, 9_000 - 610);
    assert_eq!(script.left_out[0], "KVM_SET_REGS");
    assert_eq!(script.stands_in, Vec::<String>::new());
}

#[test]
fn a_pause_is_no_longer_than_what_passes_with_time() {
    let calls = vec![call("KVM_CREATE_VM", 0, &[("vm", 0)]), slot(5_000_000_000, 0, 0, GIB)];
    assert_eq!(Script::of(&trace(calls)).unwrap().steps[1].pause, 16_000_000);
}

#[test]
fn one_vcpu_is_run_once_however_many_did() {
    let run = |at, id| Call { on: Some(Object::Vcpu { vm: 0, id }), ..call("KVM_RUN", at, &[]) };
    let calls = vec![
        call("KVM_CREATE_VM", 0, &[("vm", 0)]),
        slot(10, 0, 0, GIB),
        call("KVM_CREATE_VCPU", 20, &[("id", 0)]),
        call("KVM_CREATE_VCPU", 30, &[("id", 1)]),
        run(40, 1),
        run(50, 0),
        run(60, 1),
    ];
    let acts = acts(&Script::of(&trace(calls)).unwrap());
    assert_eq!(acts[2..], [Act::Vcpu(0), Act::Vcpu(1), Act::Run(1)]);
}

#[test]
fn what_passes_before_the_close_is_counted_to_the_close_after_all_else() {
    let calls = vec![
        call("KVM_CREATE_VM", 0, &[("vm", 0)]),
        call("KVM_CREATE_VCPU", 10, &[("id", 0)]),
        // A copy of the descriptor.
        call("close", 30, &[]),
        call("KVM_CREATE_VCPU", 50, &[("id", 1)]),
        call("close", 1_000, &[]),
    ];
    assert_eq!(Script::of(&trace(calls)).unwrap().before_close, 1_000 - 60);
}

#[test]
fn calls_that_are_made_all_the_time_while_vcpus_run_are_left_out_and_counted() {
    let after = |count: u64| {
        let mut calls = vec![
            call("KVM_CREATE_VM", 0, &[("vm", 0)]),
            slot(10, 0, 0, GIB),
            call("KVM_CREATE_VCPU", 30, &[("id", 0)]),
            call("KVM_RUN", 50, &[]),
        ];
        calls[3].took = Some(9_000);
        let lines = |n| call("KVM_IRQFD", 100 + n, &[("eventfd", n), ("gsi", 4)]);
        calls.extend((0..count).map(lines));
        let script = Script::of(&Trace { recorder: Recorder::Tracefs, ..trace(calls) }).unwrap();
        let said = script.left_out.iter().find(|one| one.ends_with("made while vCPUs ran"));
        (script.steps.len(), said.cloned())
    };
    assert_eq!(after(500), (504, None));
    assert_eq!(after(501), (4, Some("501 calls made while vCPUs ran".to_owned())));
}

#[test]
fn a_guest_runs_where_there_is_memory_that_its_code_can_be_written_to_by_then() {
    let runs = |number: u64, size: u64, flags: u64| {
        let arguments = [("slot", number), ("guest", 0), ("size", size), ("flags", flags)];
        let memory = |at| call("KVM_SET_USER_MEMORY_REGION", at, &arguments);
        let run = |first, then| {
            let mut calls = vec![
                call("KVM_CREATE_VM", 0, &[("vm", 0)]),
                call("KVM_CREATE_VCPU", 10, &[("id", 0)]),
                memory(first),
                call("KVM_RUN", then, &[]),
            ];
            calls.sort_by_key(|call| call.at);
            acts(&Script::of(&trace(calls)).unwrap()).contains(&Act::Run(0))
        };
        (run(20, 40), run(40, 20))
    };
    assert_eq!(runs(3, GIB, 0), (true, false));
    assert_eq!(runs(3, GIB, 2), (false, false), "it is read-only");
    assert_eq!(runs(3, 4096, 0), (false, false), "it is too small");
}

#[test]
fn what_failed_and_what_is_on_another_vm_is_left_out_and_said() {
    let mut failed = call("KVM_CREATE_PIT2", 30, &[]);
    failed.result = Some(-17);
    let mut other = call("KVM_CREATE_IRQCHIP", 40, &[]);
    other.on = Some(Object::Vm { vm: 1 });
    let calls = vec![
        call("KVM_CREATE_VM", 0, &[("vm", 0)]),
        call("KVM_CREATE_VM", 10, &[("vm", 1)]),
        failed,
        other,
        call("KVM_CREATE_VCPU", 50, &[("id", 0)]),
        call("KVM_RUN", 60, &[]),
    ];
    let script = Script::of(&trace(calls)).unwrap();
    assert_eq!(acts(&script), [Act::CreateVm, Act::Vcpu(0)]);
    let said = script.left_out.join(", ");
    for expected in ["KVM_CREATE_PIT2", "other VMs", "KVM_RUN, because the guest has no memory"] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn slots_whose_sizes_nobody_saw_are_put_where_no_other_is() {
    let unseen = |at| call("KVM_SET_USER_MEMORY_REGION", at, &[]);
    let mut calls = vec![
        call("KVM_CREATE_VM", 0, &[("vm", 0)]),
        unseen(10),
        slot(20, 3, 5 * GIB, GIB),
        unseen(30),
        call("KVM_IRQFD", 35, &[]),
        call("KVM_IRQFD", 36, &[]),
        call("KVM_CREATE_VCPU", 40, &[("id", 0)]),
        call("KVM_RUN", 50, &[]),
        // It may be one that is taken away.
        unseen(5_000),
    ];
    calls[7].took = Some(1_000);
    let trace = Trace { recorder: Recorder::Tracefs, ..trace(calls) };
    let script = Script::of(&trace).unwrap();
    let slots: Vec<(u32, u64, u64)> = script
        .steps
        .iter()
        .filter_map(|step| match step.act {
            Act::Slot { slot, guest, size, .. } => Some((slot, guest, size)),
            _ => None,
        })
        .collect();
    assert_eq!(slots, [(4, 0, 2 << 20), (3, 5 * GIB, GIB), (5, 8 * GIB + (2 << 20), 2 << 20)]);
    assert!(
        script.stands_in.iter().any(|one| one.starts_with("memslots") && one.ends_with("(2)")),
        "{script:?}"
    );
    assert!(
        script.stands_in.iter().any(|one| one.starts_with("irqfds") && one.ends_with("(2)")),
        "{script:?}"
    );
    assert!(script.left_out.iter().any(|one| one == "KVM_SET_USER_MEMORY_REGION"), "{script:?}");
}

#[test]
fn devices_that_go_are_those_that_came() {
    let event = |at, flags| {
        let arguments = [("address", 16), ("length", 2), ("eventfd", 9), ("flags", flags)];
        call("KVM_IOEVENTFD", at, &arguments)
    };
    let line = |at, flags| call("KVM_IRQFD", at, &[("eventfd", 7), ("gsi", 4), ("flags", flags)]);
    let calls = vec![
        call("KVM_CREATE_VM", 0, &[("vm", 0)]),
        event(10, 2),
        // Registered at an address, not at a port.
        event(20, 4),
        event(30, 6),
        line(40, 0),
        line(50, 1),
        line(60, 1),
        slot(70, 1, 0, 4096),
        slot(80, 1, 0, 0),
        slot(90, 1, 0, 0),
    ];
    let script = Script::of(&trace(calls)).unwrap();
    let port = IoEvent { address: 16, length: 2, value: None, is_port: true, eventfd: 9 };
    let expected = [
        Act::CreateVm,
        Act::IoEvent(port, Change::Comes),
        Act::IoEvent(port, Change::Goes),
        Act::IrqFd { eventfd: 7, gsi: 4, change: Change::Comes },
        Act::IrqFd { eventfd: 7, gsi: 4, change: Change::Goes },
        Act::Slot { slot: 1, guest: 0, size: 4096, flags: 0 },
        Act::DeleteSlot { slot: 1 },
    ];
    assert_eq!(acts(&script), expected);
}

#[test]
fn without_the_vm_s_creation_there_is_nothing_to_replay() {
    assert!(Script::of(&Trace::default()).is_err());
    let attached = vec![slot(10, 0, 0, GIB), call("KVM_RUN", 20, &[])];
    assert_eq!(
        Script::of(&trace(attached)).unwrap_err(),
        "the VM was there before the trace began"
    );
}

#[test]
fn numbers_that_no_vmm_has_do_no_harm() {
    let calls = vec![
        call("KVM_CREATE_VM", 0, &[("vm", 0)]),
        slot(10, u64::MAX, u64::MAX, u64::MAX),
        call("KVM_SET_USER_MEMORY_REGION", 20, &[]),
        call("KVM_CREATE_VCPU", 30, &[("id", u64::MAX)]),
        call("KVM_SET_GSI_ROUTING", 40, &[("routes", u64::MAX)]),
        call("KVM_IOEVENTFD", 50, &[("address", u64::MAX), ("length", u64::MAX), ("flags", 1)]),
    ];
    let script = Script::of(&trace(calls)).unwrap();
    assert!(script.steps.iter().all(|step| !matches!(step.act, Act::Vcpu(_))));
}

#[test]
fn a_slot_where_another_still_is_was_made_after_a_deletion_that_was_not_recorded_and_is_left_out() {
    let read = |slots: Vec<Call>| {
        let calls = [call("KVM_CREATE_VM", 100, &[("vm", 0)])].into_iter().chain(slots).collect();
        let script = Script::of(&trace(calls)).unwrap();
        let numbers = acts(&script).into_iter().filter_map(|act| match act {
            Act::Slot { slot, .. } => Some(slot),
            _ => None,
        });
        (numbers.collect::<Vec<_>>(), script.stands_in.len())
    };
    // QEMU's: all of memory as one, and then in parts.
    let whole = || slot(200, 0, 0, GIB);
    assert_eq!(read(vec![whole(), slot(300, 1, 0, GIB / 2)]), (vec![0], 1));
    assert_eq!(read(vec![whole(), slot(300, 0, 0, GIB / 2)]), (vec![0], 1));
    // Where the deletion is known, or nothing is in the way, each is there.
    assert_eq!(read(vec![whole(), slot(250, 0, 0, 0), slot(300, 1, 0, GIB / 2)]), (vec![0, 1], 0));
    assert_eq!(read(vec![whole(), slot(300, 1, GIB, GIB)]), (vec![0, 1], 0));
    assert_eq!(read(vec![whole(), slot(300, 0, 4 * GIB, GIB)]), (vec![0, 0], 0));
}
