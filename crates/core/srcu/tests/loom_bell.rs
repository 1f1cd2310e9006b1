//! A bell under loom: who sleeps until a reader of some domain has left is woken, or finds it gone.
//!
//! One that is never woken is a deadlock, which loom reports.

#![cfg(mayfly_loom)]

use std::sync::Arc;

use loom::model::Builder;
use loom::sync::atomic::Ordering;
use loom::thread;

use mayfly_platform::Model;
use mayfly_srcu::{Asked, Bell, Config, Cookie, Srcu};

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}

fn domain() -> Srcu {
    Srcu::try_new(Arc::new(Model::new()), Config::default()).unwrap()
}

fn bell() -> Arc<Bell> {
    Arc::new(Bell::new(Arc::new(Model::new())))
}

fn sleep_until_over(domain: &Srcu, cookie: Cookie, bell: &Arc<Bell>) {
    loop {
        let rung = bell.rung().load(Ordering::Acquire);
        match domain.poll_or_ring(cookie, bell) {
            Asked::Over => return,
            Asked::Rings => bell.wait(rung),
            Asked::MayRing => panic!("there is no other bell, and no fence"),
        }
    }
}

#[test]
fn who_sleeps_by_a_bell_is_woken_by_the_reader_that_leaves() {
    check(|| {
        let (domain, bell) = (domain(), bell());
        let section = domain.reader().unwrap().lock_owned();
        let reader = thread::spawn(move || drop(section));
        sleep_until_over(&domain, domain.start_poll(), &bell);
        reader.join().unwrap();
    });
}

#[test]
fn so_is_one_that_comes_when_another_has_asked_the_reader_already() {
    check(|| {
        let (domain, bell) = (domain(), bell());
        let section = domain.reader().unwrap().lock_owned();
        // Has the reader asked to say when it leaves.
        domain.expedite();
        let cookie = domain.start_poll();
        let reader = thread::spawn(move || drop(section));
        sleep_until_over(&domain, cookie, &bell);
        reader.join().unwrap();
    });
}

#[test]
fn a_bell_that_another_was_before_is_known_to_be_rung_by_nobody() {
    check(|| {
        let (domain, first, second) = (domain(), bell(), bell());
        let section = domain.read_lock();
        let cookie = domain.start_poll();
        assert_eq!(domain.poll_or_ring(cookie, &first), Asked::Rings);
        assert_eq!(domain.poll_or_ring(cookie, &second), Asked::MayRing);
        drop(section);
        assert_eq!(domain.poll_or_ring(cookie, &second), Asked::Over);
        assert_ne!(first.rung().load(Ordering::Acquire), 0);
    });
}
