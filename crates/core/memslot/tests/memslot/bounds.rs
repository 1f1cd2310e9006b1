//! What old snapshots count against the bounds of their domain.

use mayfly_memslot::{Gpa, Hva, Region};
use mayfly_srcu::{Limits, ReadGuard, Srcu};

use crate::common::{LOG, NONE, generation, region, slots, slots_within};

/// A slot of so many pages has a log of so many bytes: 1 MiB, or less under Miri, and two bits for 512 pages.
const PAGES: u64 = if cfg!(miri) { 1 << 18 } else { 8 << 20 };
const LOG_BYTES: usize = PAGES as usize / 8 + PAGES as usize / 512 * 2 / 8;

/// Much more than a snapshot of a few slots takes.
const SMALL: usize = 4096;

fn logged() -> Region<Hva> {
    Region { flags: LOG, ..region(0, 0, PAGES, 0) }
}

fn deferred(domain: &Srcu) -> usize {
    domain.stats().deferred_bytes
}

/// Has the last reader leave, after which nothing stays deferred.
fn leave_and_free(section: ReadGuard<'_>, domain: &Srcu) {
    drop(section);
    domain.barrier();
    assert_eq!(deferred(domain), 0);
}

/// Only a log is deferred, beside arrays of a few slots.
fn assert_one_log_deferred(domain: &Srcu) {
    let bytes = deferred(domain);
    assert!((LOG_BYTES..LOG_BYTES + SMALL).contains(&bytes), "{bytes}");
}

#[test]
fn a_log_that_a_change_drops_counts_as_deferred_with_the_last_snapshot_that_has_it() {
    let drops = [region(0, 0, 0, 0), Region { flags: NONE, ..logged() }];
    for change in drops {
        let (domain, slots) = slots();
        let vcpu = domain.reader().unwrap();
        slots.set(&logged()).unwrap();
        domain.barrier();
        let section = vcpu.lock();
        let dropped = slots.apply(&change).unwrap().unwrap();
        assert_eq!(deferred(&domain), 0);
        dropped.retired.defer();
        assert_one_log_deferred(&domain);
        leave_and_free(section, &domain);
    }
}

#[test]
fn a_log_that_goes_on_does_not_count_and_one_that_several_old_snapshots_have_counts_once() {
    let (domain, slots) = slots();
    let vcpu = domain.reader().unwrap();
    slots.set(&logged()).unwrap();
    domain.barrier();
    let section = vcpu.lock();
    slots.set(&region(1, PAGES, 1, 0)).unwrap();
    let moved = Region { gpa: Gpa::new(PAGES << 13), ..logged() };
    slots.apply(&moved).unwrap().unwrap().retired.defer();
    let bytes = deferred(&domain);
    assert!((1..SMALL).contains(&bytes), "{bytes}");
    slots.apply(&region(0, 0, 0, 0)).unwrap().unwrap().retired.defer();
    assert_one_log_deferred(&domain);
    leave_and_free(section, &domain);
}

#[test]
fn a_log_counts_until_readers_have_left_however_long_the_edit_keeps_it() {
    let (domain, slots) = slots();
    let vcpu = domain.reader().unwrap();
    slots.set(&logged()).unwrap();
    domain.barrier();
    let section = vcpu.lock();
    let change = slots.apply(&region(0, 0, 0, 0)).unwrap().unwrap();
    change.retired.defer();
    assert!(deferred(&domain) >= LOG_BYTES);
    leave_and_free(section, &domain);
    let log = change.edit.before().unwrap().dirty().unwrap();
    assert_eq!(log.pages(), PAGES, "the edit has it still");
}

#[test]
fn logs_hurry_the_grace_period_past_the_soft_bound_of_bytes() {
    let limits = Limits { soft_bytes: 2 * LOG_BYTES + 4 * SMALL, ..Limits::default() };
    let (domain, slots) = slots_within(limits);
    let vcpu = domain.reader().unwrap();
    let section = vcpu.lock();
    let before = domain.stats().grace_periods;
    for logs in 1..=4 {
        slots.set(&logged()).unwrap();
        slots.apply(&region(0, 0, 0, 0)).unwrap().unwrap().retired.defer();
        let hurried = domain.stats().grace_periods - before;
        assert_eq!(hurried > 0, logs > 2, "after {logs}: {hurried}");
    }
    leave_and_free(section, &domain);
}

#[test]
fn a_log_as_large_as_the_hard_bound_waits_for_readers_or_comes_back() {
    let limits = Limits { soft_bytes: 0, hard_bytes: LOG_BYTES, ..Limits::default() };
    let (domain, slots) = slots_within(limits);
    let vcpu = domain.reader().unwrap();
    slots.set(&logged()).unwrap();
    domain.barrier();
    let change = slots.apply(&region(0, 0, 0, 0)).unwrap().unwrap();
    let retired = {
        let _section = vcpu.lock();
        change.retired.try_defer().unwrap_err()
    };
    let before = domain.stats().grace_periods;
    retired.defer();
    assert_eq!((domain.stats().grace_periods, deferred(&domain)), (before + 1, 0));
    assert_eq!(generation(&slots, &domain), change.generation);
}
