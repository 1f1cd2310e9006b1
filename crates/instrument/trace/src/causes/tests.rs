//! Causes that this host may not have, in traces as other kernels would give them; and what is no evidence.

mod calls;
mod lives;
mod sleeps;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mayfly_record::Host;

use super::find;
use crate::record::{Call, Object, Process, Recorder, Sample, Thread, Trace, Used};

const MS: u64 = 1_000_000;

fn call(name: &str, at: u64, took: u64, ran: u64) -> Call {
    Call {
        tid: 1,
        pid: 1,
        at,
        took: Some(took),
        name: name.to_owned(),
        on: Some(Object::Vm { vm: 0 }),
        result: Some(0),
        used: Some(Used { ran, queued: 0 }),
        ..Call::default()
    }
}

fn seen(at: u64, took: u64, stack: &[&str]) -> Sample {
    let stack = stack.iter().map(|name| (*name).to_owned()).collect();
    Sample { tid: 1, at, took, seen: 2, stack, ..Sample::default() }
}

fn codes(kernel: &str, calls: Vec<Call>, samples: Vec<Sample>) -> Vec<String> {
    let host = Host { kernel: kernel.to_owned(), hz: Some(250), ..Host::default() };
    let trace = Trace { host: Some(host), calls, samples, ..Trace::default() };
    find(&trace).into_iter().filter_map(|stall| Some(stall.cause?.code)).collect()
}

#[test]
fn the_page_s_table_has_the_codes_of_the_catalogue() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/causes");
    let sources = fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.is_file() && !path.ends_with("tests.rs"));
    let named = sources.flat_map(|path| {
        let text = fs::read_to_string(path).unwrap();
        let causes = text.split("likely(").skip(1);
        let codes =
            causes.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
        codes.map(str::to_owned).collect::<Vec<_>>()
    });
    let named: BTreeSet<String> = named.collect();
    let page = include_str!("../../../../../docs/trace.md");
    let table = page.split("| code |").nth(1).unwrap().split("\n\n").next().unwrap();
    let told = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(told.map(str::to_owned).collect::<BTreeSet<_>>(), named);
    assert!(named.len() > 10, "{named:?}");
}

#[test]
fn the_worker_for_huge_pages_is_named_where_it_is_started() {
    let stack = ["percpu_down_write", "cgroup_attach_task_all", "kvm_vm_worker_thread"];
    let create = || vec![call("KVM_CREATE_VM", 0, 27 * MS, MS)];
    assert_eq!(codes("6.12.0", create(), vec![seen(MS, 20 * MS, &stack)]), ["huge-page-worker"]);
    let stack = ["wait_for_completion", "vhost_task_create", "kvm_mmu_start_lpage_recovery"];
    let run = || vec![call("KVM_RUN", 0, 27 * MS, MS)];
    assert_eq!(codes("6.14.0", run(), vec![seen(MS, 20 * MS, &stack)]), ["huge-page-worker"]);
    // Long is no evidence, and neither is what was seen at another time.
    assert!(codes("6.12.0", create(), vec![]).is_empty());
    assert!(codes("6.14.0", run(), vec![seen(40 * MS, MS, &stack)]).is_empty());
    // The first run alone starts it.
    let again = vec![call("KVM_RUN", 0, MS, 0), call("KVM_RUN", 10 * MS, 27 * MS, MS)];
    assert!(codes("6.14.0", again, vec![seen(11 * MS, 20 * MS, &stack)]).is_empty());
}

#[test]
fn a_deleted_slot_is_named_where_it_took_work_and_a_new_one_is_not() {
    let mut add = call("KVM_SET_USER_MEMORY_REGION", 0, MS, MS);
    add.arguments.insert("size".to_owned(), 1 << 34);
    let mut delete = call("KVM_SET_USER_MEMORY_REGION", 50 * MS, 9 * MS, 8 * MS);
    // One of which nothing was read may be any.
    assert!(codes("6.12.0", vec![add.clone(), delete.clone()], vec![]).is_empty());
    delete.arguments.insert("size".to_owned(), 0);
    assert_eq!(codes("6.12.0", vec![add, delete], vec![]), ["slot-delete"]);
    let slept = call("KVM_SET_USER_MEMORY_REGION", 50 * MS, 9 * MS, 0);
    assert!(codes("6.12.0", vec![slept], vec![]).is_empty());
}

#[test]
fn a_new_slot_is_named_where_it_is_large_and_took_work() {
    let slot = |number: u64, at: u64, size: u64| {
        let mut call = call("KVM_SET_USER_MEMORY_REGION", at * MS, 9 * MS, 8 * MS);
        call.arguments = [("slot".to_owned(), number), ("size".to_owned(), size)].into();
        call
    };
    let (large, named) = (1 << 34, ["large-memslot"]);
    assert_eq!(codes("6.12.0", vec![slot(0, 0, large)], vec![]), named);
    assert_eq!(
        codes("6.12.0", vec![slot(0, 0, large), slot(1, 50, large)], vec![]),
        [named, named].concat()
    );
    assert!(codes("6.12.0", vec![slot(0, 0, 1 << 29)], vec![]).is_empty());
    let mut other = [slot(0, 0, large), slot(0, 0, large)];
    (other[0].result, other[1].used) = (Some(-12), Some(Used { ran: 5 * MS, queued: 0 }));
    for other in other {
        assert!(codes("6.12.0", vec![other], vec![]).is_empty(), "it failed, or slept");
    }
    // Seen at something else it is that.
    let pinned = vec![seen(MS, MS, &["faultin_page"])];
    assert_eq!(codes("6.12.0", vec![slot(0, 0, large)], pinned), ["populated-memory"]);

    // Flags are changed where the slot is there; and not where it was deleted, or is another VM's.
    let short = |call: Call| Call { took: Some(MS), ..call };
    let after = |earlier: Vec<Call>| {
        let calls = earlier.into_iter().map(short).chain([slot(3, 50, large)]).collect();
        codes("6.12.0", calls, vec![])
    };
    assert!(after(vec![slot(3, 0, large)]).is_empty());
    assert_eq!(after(vec![slot(3, 0, large), slot(3, 20, 0)]), named);
    assert_eq!(after(vec![slot(4, 0, large)]), named);
    assert_eq!(after(vec![Call { result: Some(-17), ..slot(3, 0, large) }]), named);
    assert_eq!(after(vec![Call { on: Some(Object::Vm { vm: 1 }), ..slot(3, 0, large) }]), named);

    // Of short calls tracepoints do not tell which slot they were about: then it is new as long as nothing has run.
    let unknown = || Call { arguments: [].into(), ..slot(3, 0, large) };
    assert_eq!(after(vec![unknown()]), named);
    let run =
        |at| Call { on: Some(Object::Vcpu { vm: 0, id: 0 }), ..call("KVM_RUN", at * MS, MS, 0) };
    assert!(after(vec![unknown(), run(30)]).is_empty());
    assert_eq!(after(vec![slot(4, 0, large), run(30)]), named);
}

#[test]
fn a_grace_period_takes_a_registration_before_it_and_the_right_kernel_or_stack() {
    let arm = |at| call("KVM_CREATE_IRQCHIP", at, MS / 10, 0);
    let mut pay = call("KVM_SET_USER_MEMORY_REGION", 20 * MS, 6 * MS, MS / 10);
    pay.arguments.insert("size".to_owned(), 1 << 30);
    let both = |at| vec![arm(at), pay.clone()];
    assert_eq!(codes("6.18.4", both(19 * MS), vec![]), ["grace-period"]);
    assert!(codes("6.12.4", both(19 * MS), vec![]).is_empty(), "it frees before it returns");
    assert!(codes("6.18.4", both(MS), vec![]).is_empty(), "it is over by then");
    assert!(codes("6.18.4", vec![pay.clone()], vec![]).is_empty(), "nothing has begun one");
    let elsewhere = vec![seen(21 * MS, 4 * MS, &["mutex_lock", "kvm_vm_ioctl"])];
    assert!(codes("6.18.4", both(19 * MS), elsewhere).is_empty(), "it was seen elsewhere");
    let mut failed = both(19 * MS);
    failed[0].result = Some(-17);
    assert!(codes("6.18.4", failed, vec![]).is_empty(), "nothing was registered");
    let worked = call(&pay.name, pay.at, 6 * MS, 4 * MS);
    assert!(codes("6.18.4", vec![arm(19 * MS), worked], vec![]).is_empty(), "it did not sleep");
    let long = call(&pay.name, pay.at, 60 * MS, 0);
    assert!(codes("6.18.4", vec![arm(19 * MS), long], vec![]).is_empty(), "none lasts so long");
    let mut other = both(19 * MS);
    other[0].on = Some(Object::Vm { vm: 1 });
    assert!(codes("6.18.4", other, vec![]).is_empty(), "another VM's is another domain");
}

#[test]
fn memory_that_is_freed_at_the_end_has_what_was_seen_as_evidence_and_no_more() {
    let evidence = |samples| {
        let thread =
            Thread { tid: 1, pid: 1, ending: Some(0), gone: Some(9 * MS), ..Thread::default() };
        let process =
            Process { pid: 1, gone: Some(9 * MS), resident: Some(64 << 20), ..Process::default() };
        let host = Host { hz: Some(250), ..Host::default() };
        let (host, threads, processes) = (Some(host), vec![thread], vec![process]);
        let trace = Trace { host, processes, threads, samples, ..Trace::default() };
        find(&trace).into_iter().find_map(|stall| Some(stall.cause?.evidence))
    };
    let had = "it had 64 MiB of memory when it ended".to_owned();
    let freed = "it was seen in unmap_page_range".to_owned();
    let looked = seen(MS, MS, &["unmap_page_range"]);
    assert_eq!(evidence(vec![looked.clone()]), Some(vec![had.clone(), freed.clone()]));
    let ran = Sample { ran: 5 * MS, ..looked };
    assert_eq!(evidence(vec![ran]), Some(vec![had, "it ran for 5.00 ms of it".to_owned(), freed]));
    assert_eq!(evidence(vec![]), None);
}

#[test]
fn an_interrupt_controller_or_a_timer_is_named_where_it_was_seen_to_be_made() {
    for (name, function) in [
        ("KVM_CREATE_IRQCHIP", "synchronize_srcu_expedited"),
        ("KVM_CREATE_IRQCHIP", "kvm_set_irq_routing"),
        ("KVM_CREATE_PIT2", "__kthread_create_on_node"),
    ] {
        let make = |at| vec![call(name, at, 9 * MS, MS)];
        let looks = |function: &str| vec![seen(MS, 7 * MS, &[function, "kvm_arch_vm_ioctl"])];
        assert_eq!(codes("6.12.0", make(0), looks(function)), ["irqchip-creation"]);
        // Neither its length, nor a lock, nor what was seen at another time, is evidence.
        assert!(codes("6.12.0", make(0), vec![]).is_empty());
        assert!(codes("6.12.0", make(0), looks("mutex_lock")).is_empty());
        assert!(codes("6.12.0", make(40 * MS), looks(function)).is_empty());
        let other = vec![call("KVM_CREATE_DEVICE", 0, 9 * MS, MS)];
        assert!(codes("6.12.0", other, looks(function)).is_empty());
    }
}

#[test]
fn what_others_had_of_the_processor_is_no_cause_of_the_call_s() {
    let mut pay = call("KVM_SET_USER_MEMORY_REGION", 20 * MS, 6 * MS, MS / 10);
    pay.used = Some(Used { ran: MS / 10, queued: 5 * MS });
    let calls = vec![call("KVM_CREATE_IRQCHIP", 19 * MS, MS / 10, 0), pay];
    assert_eq!(codes("6.18.4", calls, vec![]), ["busy-processor"]);
}

#[test]
fn a_call_waits_for_a_processor_where_most_of_it_did_or_where_little_else_is_left() {
    let waits = |took: u64, queued: u64| {
        let used = Some(Used { ran: 0, queued: queued * MS / 10 });
        let call = Call { used, ..call("KVM_GET_CLOCK", 0, took * MS / 10, 0) };
        codes("6.18.4", vec![call], vec![]) == ["busy-processor"]
    };
    // Tenths of milliseconds; what is left is worth a line from 2 ms on.
    assert_eq!(
        [(60, 30), (60, 29), (30, 12), (30, 9)].map(|(took, queued)| waits(took, queued)),
        [true, false, true, false]
    );
}

#[test]
fn a_vm_is_destroyed_in_a_close_that_was_seen_there() {
    let close = |on: Option<Object>| vec![Call { on, ..call("close", 10 * MS, 9 * MS, 0) }];
    let vm = || Some(Object::Vm { vm: 0 });
    let destroys = || seen(11 * MS, 5 * MS, &["kvm_destroy_vm"]);
    assert_eq!(codes("6.18.4", close(vm()), vec![destroys()]), ["vm-destruction"]);
    for on in [None, Some(Object::Kvm)] {
        assert!(codes("6.18.4", close(on), vec![destroys()]).is_empty());
    }
    // Where no stack is told what it waited in has to do; else that alone may be anything's.
    let channel = Some("__synchronize_srcu".to_owned());
    let waits = Sample { channel, ..seen(11 * MS, 5 * MS, &[]) };
    assert_eq!(codes("6.18.4", close(vm()), vec![waits.clone()]), ["vm-destruction"]);
    let told = seen(40 * MS, MS, &["do_nanosleep"]);
    assert!(codes("6.18.4", close(vm()), vec![waits, told]).is_empty());
}

#[test]
fn memory_is_unmapped_where_that_ran_or_was_seen_and_is_no_vcpu_s_page() {
    let unmap = |ran: u64, on: Option<Object>| {
        let mut call = Call { on, ..call("munmap", 10 * MS, 9 * MS, ran * MS) };
        call.arguments.insert("length".to_owned(), 1 << 30);
        vec![call]
    };
    let zaps = || vec![seen(11 * MS, MS, &["zap_pte_range"])];
    assert_eq!(codes("6.18.4", unmap(8, None), vec![]), ["unmapped-memory"]);
    assert_eq!(codes("6.18.4", unmap(1, None), zaps()), ["unmapped-memory"]);
    assert!(codes("6.18.4", unmap(1, None), vec![]).is_empty());
    let vcpu = Some(Object::Vcpu { vm: 0, id: 0 });
    assert!(codes("6.18.4", unmap(8, vcpu), zaps()).is_empty());
}

#[test]
fn a_thread_that_maps_waits_for_one_that_unmaps_and_the_remedy_is_no_further_thread() {
    let find_with = |stack: &[&str], from: u64| {
        let mut unmaps = Call { on: None, tid: 2, ..call("munmap", 10 * MS, 30 * MS, 29 * MS) };
        unmaps.arguments.insert("length".to_owned(), 1 << 30);
        let maps = Call { on: None, ..call("mmap", from * MS, 20 * MS, 0) };
        let samples = vec![seen((from + 1) * MS, 18 * MS, stack)];
        let stalls = find(&Trace { calls: vec![unmaps, maps], samples, ..Trace::default() });
        let causes = stalls.into_iter().filter_map(|stall| stall.cause);
        causes.map(|cause| (cause.code, cause.remedy)).collect::<Vec<_>>()
    };
    let codes =
        |told: &[(String, String)]| told.iter().map(|one| one.0.clone()).collect::<Vec<_>>();
    let held = find_with(&["rwsem_down_write_slowpath", "vm_mmap_pgoff"], 12);
    assert_eq!(codes(&held), ["unmapped-memory", "mmap-lock"]);
    assert!(held[0].1.contains("in parts"), "{held:?}");
    // It waits elsewhere, or for most of the time for something else.
    for (stack, from) in [("folio_wait_bit_common", 12), ("rwsem_down_write_slowpath", 35)] {
        let told = find_with(&[stack], from);
        assert_eq!(codes(&told), ["unmapped-memory"]);
        assert!(told[0].1.contains("on a thread that nothing waits for"), "{told:?}");
    }
}

#[test]
fn memory_is_the_guest_s_where_a_memslot_had_it_by_then() {
    let whose = |at: u64, result: i64| {
        let mut slot =
            Call { result: Some(result), ..call("KVM_SET_USER_MEMORY_REGION", at * MS, 0, 0) };
        slot.arguments = [("memory".to_owned(), 1 << 30), ("size".to_owned(), 1 << 30)].into();
        let mut unmaps = Call { on: None, ..call("munmap", 10 * MS, 30 * MS, 29 * MS) };
        unmaps.arguments = [("address".to_owned(), 1 << 30), ("length".to_owned(), 1 << 20)].into();
        let mut calls = vec![slot, unmaps];
        calls.sort_by_key(|call| call.at);
        let stalls = find(&Trace { calls, ..Trace::default() });
        stalls[0].cause.as_ref().unwrap().evidence[0].clone()
    };
    assert_eq!(whose(1, 0), "1 MiB of the guest's memory are unmapped");
    // The slot is set later at the same address, or it was refused.
    assert_eq!(whose(50, 0), "1 MiB of its own memory are unmapped");
    assert_eq!(whose(1, -22), "1 MiB of its own memory are unmapped");
}

#[test]
fn a_wait_for_a_grace_period_has_a_remedy_for_what_waits_and_removals_start_none() {
    const DEASSIGN: u64 = 1 << 2;
    let remedy = |first: (&str, u64), name: &str, arguments: &[(&str, u64)]| {
        let mut arms = call(first.0, 19 * MS, MS / 10, 0);
        arms.arguments = [("flags".to_owned(), first.1)].into();
        let mut pays = call(name, 20 * MS, 6 * MS, MS / 10);
        pays.arguments =
            arguments.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let host = Host { kernel: "6.18.4".to_owned(), hz: Some(250), ..Host::default() };
        let trace = Trace { host: Some(host), calls: vec![arms, pays], ..Trace::default() };
        Some(find(&trace).into_iter().next()?.cause?.remedy)
    };
    let event = |flags| ("KVM_IOEVENTFD", flags);
    let starts = |told: Option<String>, with: &str| {
        assert!(told.as_ref().is_some_and(|told| told.starts_with(with)), "{told:?}");
    };
    let slot = "KVM_SET_USER_MEMORY_REGION";
    starts(remedy(event(0), slot, &[("size", 1 << 30)]), "set memory before");
    starts(remedy(event(0), slot, &[("size", 0)]), "delete memslots before");
    starts(remedy(event(0), "KVM_CREATE_VCPU", &[]), "create vCPUs before");
    let removes = "remove devices two ticks";
    starts(remedy(event(0), "KVM_IOEVENTFD", &[("flags", DEASSIGN | 3)]), removes);
    starts(remedy(event(0), "KVM_UNREGISTER_COALESCED_MMIO", &[]), removes);
    // Only a removal waits, so it is one where the flags were not recorded.
    starts(remedy(event(0), "KVM_IOEVENTFD", &[]), removes);
    starts(remedy(event(0), "KVM_IRQFD", &[("flags", 1)]), "remove devices two ticks");
    // To take one away waits by itself, and leaves nothing behind that another call waits for.
    assert_eq!(remedy(event(DEASSIGN), slot, &[("size", 1 << 30)]), None);
    assert_eq!(remedy(("KVM_UNREGISTER_COALESCED_MMIO", 0), slot, &[("size", 1 << 30)]), None);
}

#[test]
fn memory_is_populated_where_that_was_asked_for_or_seen() {
    let does = |name: &str, argument: &str, value: u64, stack: &[&str]| {
        let mut call = call(name, 10 * MS, 9 * MS, 8 * MS);
        call.arguments.insert(argument.to_owned(), value);
        codes("6.18.4", vec![call], vec![seen(11 * MS, MS, stack)]) == ["populated-memory"]
    };
    let populate = libc::MAP_POPULATE as u64;
    assert!(does("mmap", "flags", populate, &[]) && !does("mmap", "flags", 2, &[]));
    assert!(does("madvise", "advice", 23, &[]) && !does("madvise", "advice", 14, &[]));
    let region = "KVM_SET_USER_MEMORY_REGION";
    assert!(
        does(region, "size", 1 << 30, &["faultin_page"]) && !does(region, "size", 1 << 30, &[])
    );
}

#[test]
fn a_vm_that_another_process_holds_is_named_once_its_own_process_is_gone() {
    let named = |gone: Option<u64>, closer: i32, on: Object| {
        let close = Call { pid: closer, tid: closer, on: Some(on), ..call("close", 50 * MS, 0, 0) };
        let calls = vec![call("KVM_CREATE_VM", 0, 0, 0), close];
        let maker = Process { pid: 1, gone, ..Process::default() };
        let trace = Trace { calls, processes: vec![maker], ..Trace::default() };
        let stalls = find(&trace).into_iter();
        let held = stalls
            .filter(|one| one.cause.as_ref().is_some_and(|cause| cause.code == "held-elsewhere"));
        held.map(|one| (one.tid, one.at, one.took)).collect::<Vec<_>>()
    };
    let vm = || Object::Vm { vm: 0 };
    assert_eq!(named(Some(20 * MS), 2, vm()), [(2, 20 * MS, 30 * MS)]);
    // It may still hold the VM itself; it was there to the end; nothing waits; another thing is closed.
    assert!(named(None, 2, vm()).is_empty());
    assert!(named(Some(60 * MS), 2, vm()).is_empty());
    assert!(named(Some(50 * MS), 2, vm()).is_empty());
    assert!(named(Some(20 * MS), 1, vm()).is_empty());
    assert!(named(Some(20 * MS), 2, Object::Kvm).is_empty());
}

#[test]
fn a_kick_that_ends_a_run_is_delivered_after_it_and_the_one_before_was_lost() {
    let lost_after = |before: Option<Call>, result: i32, signals: Vec<(u64, i32)>| {
        let run = Call {
            result: Some(result.into()),
            on: Some(Object::Vcpu { vm: 0, id: 0 }),
            ..call("KVM_RUN", 2 * MS, 30 * MS, 30 * MS)
        };
        let thread = Thread { tid: 1, pid: 1, vcpu: true, signals, ..Thread::default() };
        let recorder = Recorder::Tracefs;
        let trace = Trace {
            recorder,
            calls: before.into_iter().chain([run]).collect(),
            threads: vec![thread],
            ..Trace::default()
        };
        let stalls = find(&trace).into_iter();
        let lost =
            stalls.filter(|one| one.cause.as_ref().is_some_and(|cause| cause.code == "lost-kick"));
        lost.map(|one| (one.at, one.took)).collect::<Vec<_>>()
    };
    let lost = |result: i32, signals: Vec<(u64, i32)>| lost_after(None, result, signals);
    // As tracefs has it: the call returns, and then the signal is delivered.
    let late = vec![(MS, 34), (32 * MS + 3_000, 34)];
    assert_eq!(lost(-libc::EINTR, late.clone()), [(MS, 31 * MS + 3_000)]);
    // A run before was ended by the first, as QEMU's are.
    let heard =
        Call { result: Some((-libc::EINTR).into()), ..call("KVM_RUN", MS + MS / 2, MS / 10, 0) };
    assert!(lost_after(Some(heard), -libc::EINTR, late.clone()).is_empty());
    // Something else ended the run; or another signal did; or the first one was not lost.
    assert!(lost(0, late).is_empty());
    assert!(lost(-libc::EINTR, vec![(MS, 34), (32 * MS + 3_000, 10)]).is_empty());
    assert!(lost(-libc::EINTR, vec![(32 * MS + 3_000, 34)]).is_empty());
}
