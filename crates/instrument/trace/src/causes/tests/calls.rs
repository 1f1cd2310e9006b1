//! Causes of single calls, and of many short faults; and what fits only a part of their evidence.

use super::*;
use crate::calls::KVM_RUN;
use crate::record::{Account, Thread};

fn trace(calls: Vec<Call>, samples: Vec<Sample>) -> Trace {
    let host = Host { kernel: "6.18.4".to_owned(), hz: Some(250), ..Host::default() };
    Trace { host: Some(host), calls, samples, ..Trace::default() }
}

fn named(trace: &Trace) -> Vec<String> {
    find(trace).into_iter().filter_map(|stall| Some(stall.cause?.code)).collect()
}

#[test]
fn a_group_that_is_held_back_has_no_others_to_blame() {
    let waits = |throttled: Vec<(u64, u64)>| {
        let mut waits = call("KVM_CREATE_VM", 10 * MS, 50 * MS, MS);
        waits.used = Some(Used { ran: MS, queued: 49 * MS });
        named(&Trace { throttled, ..trace(vec![waits], vec![]) })
    };
    assert_eq!(waits(vec![]), ["busy-processor"]);
    // It is seen when the time is over, at the latest a bit after.
    assert_eq!(waits(vec![(61 * MS, 48 * MS)]), ["cpu-limit"]);
    assert_eq!(waits(vec![(5 * MS, 30 * MS), (60 * MS, 78 * MS)]), ["cpu-limit"]);
    // It was held back before, or later, or for too little of it.
    assert_eq!(waits(vec![(5 * MS, 48 * MS)]), ["busy-processor"]);
    assert_eq!(waits(vec![(90 * MS, 48 * MS)]), ["busy-processor"]);
    assert_eq!(waits(vec![(30 * MS, 20 * MS)]), ["busy-processor"]);
}

#[test]
fn memory_that_is_freed_for_the_group_is_a_limit_where_most_looks_found_it() {
    let reclaims = |looks: u64| {
        let there = Sample { seen: looks, ..seen(11 * MS, MS, &["try_to_free_mem_cgroup_pages"]) };
        let other = Sample { seen: 5, ..seen(13 * MS, MS, &["clear_page"]) };
        let mut populates = call("madvise", 10 * MS, 9 * MS, 8 * MS);
        populates.arguments = [("advice".to_owned(), 23)].into();
        named(&trace(vec![populates], vec![there, other]))
    };
    assert_eq!(
        (reclaims(6), reclaims(5)),
        (vec!["memory-limit".into()], vec!["populated-memory".into()])
    );
}

#[test]
fn a_log_that_starts_or_stops_is_named_where_that_took_work() {
    let set = |at: u64, flags: u64, ran: u64| {
        let mut slot = call("KVM_SET_USER_MEMORY_REGION", at * MS, 6 * MS, ran);
        let arguments = [("slot", 3), ("flags", flags), ("guest", 0), ("size", 1 << 30)];
        slot.arguments = arguments.map(|(name, value)| (name.to_owned(), value)).into();
        slot
    };
    let short = |at: u64, flags: u64| Call { took: Some(1000), ..set(at, flags, 1000) };
    let after = |before: u64, slot: Call| named(&trace(vec![short(5, before), slot], vec![]));
    assert_eq!(after(0, set(100, 1, 5 * MS)), ["dirty-log"]);
    assert_eq!(after(1, set(100, 0, 5 * MS)), ["dirty-log"]);
    // Nothing of the log changes; another slot; another size; it sleeps.
    assert!(after(1, set(100, 1, 5 * MS)).is_empty());
    let mut other = set(100, 1, 5 * MS);
    other.arguments.insert("slot".to_owned(), 4);
    assert_ne!(after(0, other), ["dirty-log"]);
    let mut larger = set(100, 1, 5 * MS);
    larger.arguments.insert("size".to_owned(), 2 << 30);
    assert!(after(0, larger).is_empty());
    assert!(after(0, set(100, 1, MS)).is_empty());
    let looks = vec![seen(101 * MS, 4 * MS, &["kvm_mmu_slot_apply_flags"])];
    assert_eq!(named(&trace(vec![short(5, 0), set(100, 1, MS)], looks)), ["dirty-log"]);
    let looks = vec![seen(101 * MS, 4 * MS, &["__synchronize_srcu"])];
    assert!(named(&trace(vec![short(5, 0), set(100, 1, MS)], looks)).is_empty());
}

#[test]
fn a_vm_that_is_closed_right_after_its_creation_has_a_cause_of_its_own() {
    let closed = |at: u64, ran: u64, run: bool| {
        let mut made = call("KVM_CREATE_VM", 10 * MS, MS, MS);
        made.arguments = [("vm".to_owned(), 0)].into();
        let entered = Call { took: Some(1000), ..call("KVM_RUN", 11 * MS, 0, 0) };
        let close = call("close", at * MS, 3 * MS, ran);
        let looks = vec![seen(at * MS + MS, MS, &["__synchronize_srcu", "kvm_destroy_vm"])];
        let calls = [made].into_iter().chain(run.then_some(entered)).chain([close]).collect();
        named(&trace(calls, looks))
    };
    assert_eq!(closed(12, MS / 10, false), ["close-after-create"]);
    // It is closed later; it ran a guest; it does not sleep.
    assert_eq!(closed(40, MS / 10, false), ["vm-destruction"]);
    assert_eq!(closed(12, MS / 10, true), ["vm-destruction"]);
    assert_eq!(closed(12, 2 * MS, false), ["vm-destruction"]);
}

#[test]
fn a_vm_in_a_process_with_many_mappings_is_created_in_the_time_that_these_take() {
    let created = |mappings: u64, took: u64, ran: u64| {
        let mut made = call("KVM_CREATE_VM", 10 * MS, took * MS, ran * MS);
        made.arguments = [("vm".to_owned(), 0), ("mappings".to_owned(), mappings)].into();
        named(&trace(vec![made], vec![]))
    };
    assert_eq!(created(60_000, 30, 29), ["many-mappings"]);
    // Too few; too few for so long; it slept.
    assert!(created(300, 30, 29).is_empty());
    assert!(created(4000, 30, 29).is_empty());
    assert!(created(60_000, 30, 3).is_empty());
}

#[test]
fn many_short_faults_of_a_guest_are_one_wait_if_they_come_to_a_long_one() {
    let faults = |count: u64, each: u64, request: u64, stack: &[&str]| {
        let look = |turn: u64| Sample {
            call: Some((libc::SYS_ioctl as u64, [5, request, 0, 0])),
            channel: Some("somewhere".to_owned()),
            ..seen(10 * MS + turn * 2 * MS, each, stack)
        };
        let other = |turn: u64| {
            let (at, took) = (10 * MS + turn * 2 * MS + each + 1000, 100_000);
            Sample { tid: 1, at, took, ..Sample::default() }
        };
        let samples = (0..count).flat_map(|turn| [look(turn), other(turn)]).collect();
        let account = |at: u64| Account { tid: 1, at, ran: 0, queued: 0 };
        named(&Trace { accounts: vec![account(0), account(900 * MS)], ..trace(vec![], samples) })
    };
    let file = ["filemap_fault", "handle_mm_fault"];
    assert_eq!(faults(20, MS / 2, KVM_RUN, &file), ["snapshot-faults"]);
    assert_eq!(faults(20, MS / 2, KVM_RUN, &["handle_userfault"]), ["serial-userfault"]);
    // It is few, or short in all, or something else, or no guest's.
    assert!(faults(7, MS, KVM_RUN, &file).is_empty());
    assert!(faults(9, 1000, KVM_RUN, &file).is_empty());
    assert!(faults(20, MS / 2, KVM_RUN, &["kvm_vcpu_block"]).is_empty());
    assert!(faults(20, MS / 2, 0xAE01, &file).is_empty());
}

#[test]
fn a_fault_that_is_a_wait_by_itself_is_not_one_of_many() {
    // By its account the thread slept for a quarter of each look, and by the looks for all of it.
    let look = |turn: u64| Sample {
        call: Some((libc::SYS_ioctl as u64, [5, KVM_RUN, 0, 0])),
        channel: Some("handle_userfault".to_owned()),
        ..seen((10 + 4 * turn) * MS, 3 * MS, &["handle_userfault"])
    };
    let account = |at: u64| Account { tid: 1, at, ran: at * 3 / 4, queued: 0 };
    let accounts = vec![account(0), account(900 * MS)];
    let thread = Thread { tid: 1, pid: 1, ..Thread::default() };
    let samples = (0..20).map(look).collect();
    let trace = Trace {
        accounts,
        threads: vec![thread],
        ..trace(vec![call("KVM_CREATE_VM", 0, 1, 0)], samples)
    };
    assert_eq!(named(&trace), ["userfault"; 20]);
}

#[test]
fn a_call_that_passes_by_srcu_waits_for_no_grace_period_where_it_ran_or_slept_elsewhere() {
    let named = |ran: u64, looks: Vec<Sample>| {
        let arms = call("KVM_CREATE_IRQCHIP", 19 * MS, MS / 10, 0);
        let mut pays = call("KVM_SET_USER_MEMORY_REGION", 20 * MS, 10 * MS, ran);
        pays.arguments = [("slot".to_owned(), 1), ("size".to_owned(), 4 << 30)].into();
        named(&trace(vec![arms, pays], looks))
    };
    let srcu = |looks| Sample { seen: looks, ..seen(21 * MS, MS, &["__synchronize_srcu"]) };
    let lock = |looks| Sample { seen: looks, ..seen(23 * MS, 6 * MS, &["__mutex_lock"]) };
    assert_eq!(named(MS, vec![srcu(5), lock(4)]), ["grace-period"]);
    assert!(named(MS, vec![srcu(2), lock(7)]).is_empty());
    assert_eq!(named(9 * MS, vec![srcu(2)]), ["large-memslot"]);
}
