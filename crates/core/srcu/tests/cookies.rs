//! A cookie is one of the domain that gave it.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mayfly_platform::Host;
use mayfly_srcu::{Config, Cookie, Pace, Srcu, WorkerThread};

const ASKS: [fn(&Srcu, Cookie); 2] =
    [|domain, cookie| _ = domain.poll(cookie), Srcu::cond_synchronize];

#[test]
fn a_cookie_of_another_domain_is_refused_however_it_was_made_and_asked_about() {
    let worker = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    let build = |pace| {
        let worker = Some(Arc::clone(worker.worker()));
        Srcu::try_new(Arc::new(Host::new()), Config { pace, worker, ..Config::default() }).unwrap()
    };
    let domains = [build(Pace::Urgent), build(Pace::Urgent), build(Pace::Linux { hz: 1000 })];
    for ours in &domains {
        for theirs in domains.iter().filter(|theirs| !theirs.is(ours)) {
            for make in [Srcu::cookie, Srcu::start_poll] {
                for ask in ASKS {
                    let cookie = make(theirs);
                    let asked = catch_unwind(AssertUnwindSafe(|| ask(ours, cookie)));
                    let said = asked.expect_err("taken for ours");
                    assert_eq!(said.downcast_ref(), Some(&"the cookie is one of another domain"),);
                }
            }
        }
    }
}

#[test]
fn cookies_of_one_domain_are_ordered_and_those_of_two_are_not() {
    let [domain, other] =
        [(); 2].map(|()| Srcu::try_new(Arc::new(Host::new()), Config::default()).unwrap());
    let first = domain.start_poll();
    let second = domain.start_poll();
    assert!(first < second && first != second);
    assert_eq!(first.partial_cmp(&other.start_poll()), None);
    assert_ne!(first, other.cookie());
}
