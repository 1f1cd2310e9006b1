//! The whole domain under shuttle: more threads and longer lives than loom can go through, in schedules drawn at random
//! and by probabilistic concurrency testing (PCT). Sequentially consistent, so this is about schedules; loom and
//! `store_buffers` are about memory orders.
//!
//! A version that was freed is poisoned, and a reader never sees a poisoned one. Each is freed once. A thread that is
//! never woken is a deadlock, which shuttle reports with the schedule that led there.

#![cfg(mayfly_shuttle)]

mod versions;

use shuttle::thread;

use mayfly_srcu::{Callback, Config, Limits};

use versions::{Versions, check, domain, join};

#[test]
fn without_a_worker_nobody_reads_what_was_freed_and_nothing_is_lost() {
    check(|| {
        let versions = Versions::of(&domain(Config::default()));
        join([
            versions.reader(),
            versions.passing_readers(),
            versions.anonymous_reader(),
            versions.updater(),
            versions.updater(),
            versions.spawn(|versions| {
                versions.domain.tick();
            }),
        ]);
        versions.domain.barrier();
        versions.assert_nothing_lost();
    });
}

#[test]
fn at_the_bound_nobody_reads_what_was_freed_and_nothing_is_lost() {
    check(|| {
        let limits = Limits { soft_count: 0, hard_count: 2, ..Limits::default() };
        let versions = Versions::of(&domain(Config { limits, ..Config::default() }));
        join([versions.reader(), versions.reader(), versions.updater(), versions.updater()]);
        versions.domain.barrier();
        versions.assert_nothing_lost();
        assert!(versions.domain.stats().peak_deferred <= 2);
    });
}

#[test]
fn past_the_soft_bound_whoever_defers_runs_no_more_than_a_share_and_frees_nothing_early() {
    check(|| {
        let limits = Limits { soft_count: 0, ..Limits::default() };
        let versions = Versions::of(&domain(Config { limits, run_inline: 1, ..Config::default() }));
        let readers = [versions.reader(), versions.anonymous_reader()];
        join([versions.updater(), versions.updater()]);
        join(readers);
        versions.domain.barrier();
        versions.assert_nothing_lost();
    });
}

#[test]
fn a_synchroniser_that_comes_while_a_lazy_grace_period_is_in_flight_waits_for_its_own_readers() {
    check(|| {
        let versions = Versions::of(&domain(Config::default()));
        let readers = [versions.reader(), versions.reader(), versions.anonymous_reader()];
        let first = versions.replace();
        versions.domain.call(versions.freeing(first));
        let lazy = versions.domain.start_poll();
        let hurried = versions.spawn(|versions| {
            let second = versions.replace();
            versions.domain.synchronize_expedited();
            versions.state.free(second);
        });
        join([hurried]);
        // The later grace period completed the earlier one, and ran what had been deferred before it.
        assert!(versions.domain.poll(lazy));
        assert!(versions.is_freed(first));
        join(readers);
        versions.assert_nothing_lost();
    });
}

#[test]
fn nobody_sees_more_deferred_than_the_bound_allows() {
    check(|| {
        let limits = Limits { hard_count: 1, ..Limits::default() };
        let domain = domain(Config { limits, ..Config::default() });
        let section = domain.read_lock();
        let deferrers = [(); 2].map(|()| {
            let domain = domain.clone();
            thread::spawn(move || {
                drop(domain.try_call(Callback::try_new(|| ()).unwrap()));
            })
        });
        assert!(domain.stats().deferred <= 1);
        join(deferrers);
        assert_eq!(domain.stats().deferred, 1);
        drop(section);
        domain.barrier();
    });
}
