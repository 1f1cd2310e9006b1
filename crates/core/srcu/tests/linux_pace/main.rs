//! When things happen in a domain paced as Linux, in exact jiffies: time is the test's, and the worker is turned by
//! hand.
//!
//! What is expected follows `kernel/rcu/srcutree.c` of Linux v6.18; a delay of `n` jiffies ends at the tick that ends
//! jiffy `n` from now.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod jiffies;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_srcu::{Callback, Config, Pace, Srcu};

use jiffies::{BEGIN, HZ, Linux, Log, NANOS_PER_SECOND, READING};

#[test]
fn a_callback_on_an_idle_domain_waits_for_a_step_and_then_for_its_invocation() {
    let (linux, log) = (Linux::new(), Arc::new(Log::default()));
    linux.domain.call(Log::callback(&log, &linux, "normal"));
    let cookie = linux.domain.start_poll();
    assert_eq!(linux.turn(), Some(2), "the step is armed for a jiffy");
    linux.set(BEGIN + 1, linux.jiffy - 20 * READING);
    assert_eq!(linux.turn(), Some(2));
    assert!(!linux.domain.poll(cookie));
    linux.set(BEGIN + 2, 0);
    assert_eq!(linux.turn(), Some(4), "the invocation is armed for a jiffy");
    assert_eq!(log.take(), []);
    linux.set(BEGIN + 4, 0);
    assert_eq!(linux.turn(), None);
    assert!(linux.domain.poll(cookie));
    assert_eq!(log.take(), [("normal", 4)]);
}

#[test]
fn the_step_takes_between_one_and_two_jiffies_at_any_rate_and_phase() {
    for hz in [100, 250, 300, 1000] {
        for phase in 0..16 {
            let linux = Linux::at(hz);
            let begin = linux.jiffy * phase / 16;
            linux.set(BEGIN, begin);
            let cookie = linux.domain.start_poll();
            let end = linux.worker.0.turn().as_nanos();
            linux.time.now.store(end, Ordering::Relaxed);
            linux.worker.0.turn();
            assert!(linux.domain.poll(cookie));
            let took = u128::from(end - (BEGIN * linux.jiffy + begin));
            let jiffy = u128::from(NANOS_PER_SECOND).div_ceil(u128::from(hz));
            // At 300 Hz a jiffy is no whole number of nanoseconds, and jiffy 1000 begins later than 1000 of ours.
            assert!(
                (jiffy..=2 * jiffy + 1_000).contains(&took),
                "{hz} Hz, phase {phase}: {took} ns"
            );
        }
    }
}

#[test]
fn from_idle_an_expedited_request_waits_for_no_tick() {
    let (linux, log) = (Linux::new(), Arc::new(Log::default()));
    linux.domain.call_expedited(Log::callback(&log, &linux, "expedited"));
    assert_eq!(linux.turn(), None);
    assert_eq!(log.take(), [("expedited", 0)]);

    let synchroniser = linux.asleep(Srcu::synchronize_expedited);
    assert_eq!(linux.turns(), [0]);
    synchroniser.join();
}

#[test]
fn an_expedited_synchroniser_waits_for_the_step_that_a_normal_callback_armed() {
    let (linux, log) = (Linux::new(), Arc::new(Log::default()));
    linux.domain.call(Log::callback(&log, &linux, "normal"));
    let synchroniser = linux.asleep(Srcu::synchronize_expedited);
    // Being urgent, the grace period in flight still takes the step it has begun...
    assert_eq!(linux.turn(), Some(2));
    linux.set(BEGIN + 1, linux.jiffy - 20 * READING);
    assert_eq!(linux.turn(), Some(2));
    assert!(!synchroniser.is_done());
    // ... and then the synchroniser's own follows without delay, as do the callbacks of both.
    linux.set(BEGIN + 2, 0);
    assert_eq!(linux.turn(), None);
    synchroniser.join();
    assert_eq!(log.take(), [("normal", 2)]);
    assert_eq!(linux.domain.stats().grace_periods, 2);
}

#[test]
fn an_expedited_callback_after_a_normal_one_waits_as_a_synchroniser_does() {
    let (linux, log) = (Linux::new(), Arc::new(Log::default()));
    linux.domain.call(Log::callback(&log, &linux, "normal"));
    linux.domain.call_expedited(Log::callback(&log, &linux, "expedited"));
    assert_eq!(linux.turns(), [0, 2]);
    assert_eq!(log.take(), [("normal", 2), ("expedited", 2)]);
}

#[test]
fn a_callback_that_is_expedited_first_leaves_no_delay_to_the_synchroniser_after_it() {
    let (linux, log) = (Linux::new(), Arc::new(Log::default()));
    linux.domain.call_expedited(Log::callback(&log, &linux, "expedited"));
    let synchroniser = linux.asleep(Srcu::synchronize_expedited);
    assert_eq!(linux.turns(), [0]);
    synchroniser.join();
    assert_eq!(log.take(), [("expedited", 0)]);
}

#[test]
fn a_grace_period_that_another_one_made_wait_starts_without_a_step_of_its_own() {
    let (linux, log) = (Linux::new(), Arc::new(Log::default()));
    linux.domain.call(Log::callback(&log, &linux, "first"));
    linux.set(BEGIN + 1, 0);
    linux.domain.call(Log::callback(&log, &linux, "second"));
    assert_eq!(linux.turns(), [1, 2, 4]);
    assert_eq!(log.take(), [("first", 4), ("second", 4)]);
    assert_eq!(linux.domain.stats().grace_periods, 2);
}

#[test]
fn the_invocation_that_a_normal_grace_period_armed_is_no_later_for_an_expedited_one_between() {
    let (linux, log) = (Linux::new(), Arc::new(Log::default()));
    linux.domain.call(Log::callback(&log, &linux, "normal"));
    linux.set(BEGIN + 2, 0);
    assert_eq!(linux.turn(), Some(4));
    linux.domain.call_expedited(Log::callback(&log, &linux, "expedited"));
    // Both are done with; the timer still fires, and finds nothing.
    assert_eq!(linux.turns(), [2, 4]);
    assert_eq!(log.take(), [("normal", 2), ("expedited", 2)]);
}

#[test]
fn while_a_reader_stays_the_steps_grow_to_ten_jiffies() {
    let (linux, log) = (Linux::new(), Arc::new(Log::default()));
    let reader = linux.domain.reader().unwrap();
    let section = reader.lock();
    linux.domain.call(Log::callback(&log, &linux, "normal"));
    let mut steps = Vec::new();
    while steps.len() < 7 {
        let next = linux.turn().unwrap();
        linux.set(BEGIN + next, 0);
        steps.push(next);
    }
    // A jiffy, and the jiffies beyond one that the grace period has lasted: 1, 2, 5, 10, 10, ...; each to the end of
    // its last.
    assert_eq!(steps, [2, 5, 11, 22, 33, 44, 55]);
    drop(section);
    assert_eq!(linux.turns(), [55, 57]);
    assert_eq!(log.take(), [("normal", 57)]);
}

#[test]
fn an_expedited_grace_period_polls_a_reader_until_a_jiffy_has_passed_and_then_steps() {
    let linux = Linux::new();
    let reader = linux.domain.reader().unwrap();
    let section = reader.lock();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    linux.domain.call_expedited(
        Callback::try_new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap(),
    );
    let next = linux.turn().unwrap();
    assert_eq!(linux.jiffies(), 2, "it polled for as long as no delay was due");
    assert_eq!(next, 4, "a jiffy, for the one that the grace period has lasted beyond one");
    drop(section);
    linux.set(BEGIN + 4, 0);
    assert_eq!(linux.turn(), None);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[test]
fn a_normal_synchroniser_is_expedited_where_the_domain_was_idle() {
    let linux = Linux::new();
    let synchroniser = linux.asleep(Srcu::synchronize);
    assert_eq!(linux.turns(), [0]);
    synchroniser.join();
}

#[test]
fn a_normal_synchroniser_is_not_expedited_within_25_us_of_a_grace_period() {
    let linux = Linux::new();
    linux.domain.call_expedited(Callback::try_new(|| ()).unwrap());
    assert_eq!(linux.turn(), None);
    let synchroniser = linux.asleep(Srcu::synchronize);
    assert_eq!(linux.turns(), [0, 2, 4]);
    synchroniser.join();

    linux.set(BEGIN + 4, 25 * READING);
    let synchroniser = linux.asleep(Srcu::synchronize);
    assert_eq!(linux.turns(), [4]);
    synchroniser.join();
}

#[test]
fn a_normal_synchroniser_is_not_expedited_on_a_domain_just_built() {
    let linux = Linux::new();
    let config = Config {
        pace: Pace::Linux { hz: HZ },
        worker: Some(Arc::clone(&linux.worker.0)),
        ..Config::default()
    };
    let domain = Srcu::try_new(linux.time.clone(), config).unwrap();
    let linux = Linux { domain, ..linux };
    let synchroniser = linux.asleep(Srcu::synchronize);
    assert_eq!(linux.turns(), [0, 2, 4]);
    synchroniser.join();
}

#[test]
fn a_normal_synchroniser_is_not_expedited_while_callbacks_wait() {
    let linux = Linux::new();
    linux.domain.call(Callback::try_new(|| ()).unwrap());
    linux.set(BEGIN + 2, 0);
    assert_eq!(linux.turn(), Some(4), "the grace period is over, and its callback waits");
    linux.set(BEGIN + 3, 0);
    let synchroniser = linux.asleep(Srcu::synchronize);
    assert_eq!(linux.turns(), [3, 4, 5, 7]);
    synchroniser.join();
}

#[test]
fn a_barrier_waits_for_the_callbacks_before_it_and_asks_for_no_grace_period() {
    let (linux, log) = (Linux::new(), Arc::new(Log::default()));
    linux.domain.call(Log::callback(&log, &linux, "first"));
    let barrier = linux.asleep(Srcu::barrier);
    assert_eq!(linux.turns(), [0, 2, 4]);
    barrier.join();
    assert_eq!(log.take(), [("first", 4)]);
    assert_eq!(linux.domain.stats().grace_periods, 1);
    linux.domain.barrier();
}
