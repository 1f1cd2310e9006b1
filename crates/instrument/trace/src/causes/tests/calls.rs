//! Causes of single calls.

use super::*;

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
