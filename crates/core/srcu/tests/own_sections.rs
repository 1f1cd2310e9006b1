//! Who waits for himself is told so, in debug builds; and nobody is told so who does not.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use mayfly_platform::{Context, Host, Layer};
use mayfly_srcu::{Callback, Config, Limits, Rcu, RcuBox, Srcu, Worker};

fn domain() -> Srcu {
    Srcu::try_new(Arc::new(Host::new()), Config::default()).unwrap()
}

/// A domain where nothing more can be deferred.
fn at_the_bound() -> Srcu {
    let limits = Limits { hard_count: 0, ..Limits::default() };
    Srcu::try_new(Arc::new(Host::new()), Config { limits, ..Config::default() }).unwrap()
}

fn number(domain: &Srcu) -> Rcu<u32> {
    Rcu::new(domain, RcuBox::try_new(1).unwrap())
}

fn nothing() -> Callback {
    Callback::try_new(|| ()).unwrap()
}

/// Everything that waits for a grace period.
const WAITS: [fn(&Srcu); 5] = [
    Srcu::synchronize,
    Srcu::synchronize_expedited,
    Srcu::barrier,
    |domain| domain.cond_synchronize(domain.cookie()),
    |domain| drop(number(domain).replace(RcuBox::try_new(2).unwrap()).synchronize()),
];

#[cfg(debug_assertions)]
mod found {
    use super::*;

    const OWN_SECTION: &str = "waits for a grace period that a section of its own holds up";
    const CALLBACK: &str = "a callback waits for a grace period of its own domain";

    fn panics_saying(message: &str, work: impl FnOnce()) {
        let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("nothing was found");
        let said = panic.downcast_ref::<&str>().map(ToString::to_string);
        assert_eq!(said.or_else(|| panic.downcast_ref().cloned()).as_deref(), Some(message));
    }

    #[test]
    fn who_waits_inside_a_readers_section_is_found() {
        let domain = domain();
        let reader = domain.reader().unwrap();
        for wait in WAITS {
            let outer = reader.lock();
            panics_saying(OWN_SECTION, || wait(&domain));
            let inner = reader.lock();
            drop(outer);
            panics_saying(OWN_SECTION, || wait(&domain));
            drop(inner);
            wait(&domain);
        }
    }

    #[test]
    fn who_waits_inside_an_anonymous_section_is_found() {
        let domain = domain();
        for wait in WAITS {
            let section = domain.read_lock();
            panics_saying(OWN_SECTION, || wait(&domain));
            drop(section);
            wait(&domain);
        }
    }

    #[test]
    fn who_waits_while_making_an_update_is_found() {
        let domain = domain();
        let value = number(&domain);
        panics_saying(OWN_SECTION, || {
            let made = value.update(|old| {
                domain.synchronize();
                RcuBox::try_new(old + 1)
            });
            drop(made);
        });
        assert_eq!(*value.load(&domain.read_lock()), 1);
    }

    #[test]
    fn who_drops_what_was_retired_at_the_bound_inside_a_section_is_found_and_it_is_not_freed() {
        let domain = at_the_bound();
        let (value, reader) = (number(&domain), domain.reader().unwrap());
        let section = reader.lock();
        let old = value.load(&section);
        let retired = value.replace(RcuBox::try_new(2).unwrap());
        panics_saying(OWN_SECTION, || drop(retired));
        assert_eq!(*old, 1);
    }

    #[test]
    fn a_callback_that_waits_is_found() {
        for wait in WAITS {
            let domain = domain();
            let same = domain.clone();
            domain.call(Callback::try_new(move || wait(&same)).unwrap());
            panics_saying(CALLBACK, || domain.synchronize());
            // By whoever runs it.
            let same = domain.clone();
            domain.call(Callback::try_new(move || wait(&same)).unwrap());
            panics_saying(CALLBACK, || while domain.tick() {});
        }
    }

    #[test]
    fn a_callback_that_defers_at_the_bound_is_found() {
        let domain = at_the_bound();
        let same = domain.clone();
        panics_saying(CALLBACK, || {
            domain.call(Callback::try_new(move || same.call(nothing())).unwrap());
        });
    }

    #[test]
    fn a_callback_that_turns_its_own_worker_is_found() {
        let worker = Arc::new(Worker::new(Arc::new(Host::new())));
        let config = Config { worker: Some(Arc::clone(&worker)), ..Config::default() };
        let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
        let turned = Arc::clone(&worker);
        domain.call(Callback::try_new(move || _ = turned.turn()).unwrap());
        panics_saying("a callback turns its own worker", || _ = worker.turn());
    }
}

/// Says that the work is done when dropped, also by a panic.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Does `work` while another thread is inside what `enter` enters, which leaves when somebody sleeps for it; and where
/// nobody does, so that this fails.
fn while_another_is_inside<G>(
    domain: &Srcu,
    enter: impl FnOnce() -> G + Send,
    work: impl FnOnce(),
) {
    let (is_done, sleeps) = (AtomicBool::new(false), domain.stats().sleeps);
    thread::scope(|scope| {
        let (inside, is_inside) = mpsc::channel();
        let is_done = &is_done;
        scope.spawn(move || {
            let guard = enter();
            inside.send(()).unwrap();
            while domain.stats().sleeps == sleeps && !is_done.load(Ordering::Acquire) {
                thread::yield_now();
            }
            drop(guard);
        });
        is_inside.recv().unwrap();
        let _done = Done(is_done);
        work();
    });
    assert!(domain.stats().sleeps > sleeps, "nobody waited");
}

#[test]
fn who_waits_for_a_section_of_another_thread_is_not_found() {
    let domain = domain();
    let reader = domain.reader().unwrap();
    // This thread has been inside of both, and is not any more.
    drop((reader.lock(), domain.read_lock()));
    for wait in WAITS {
        let reader = domain.reader().unwrap();
        while_another_is_inside(&domain, || reader.lock_owned(), || wait(&domain));
        while_another_is_inside(&domain, || domain.read_lock(), || wait(&domain));
    }
}

#[test]
fn who_waits_for_a_reader_that_moved_away_is_not_found() {
    let domain = domain();
    for wait in WAITS {
        let reader = domain.reader().unwrap();
        drop(reader.lock());
        while_another_is_inside(
            &domain,
            || {
                // Its record outlives the section here.
                let reader = Box::leak(Box::new(reader));
                reader.lock()
            },
            || wait(&domain),
        );
    }
}

#[test]
fn who_waits_for_a_section_that_it_began_and_sent_away_is_not_found() {
    let domain = domain();
    for wait in WAITS {
        let sent = domain.reader().unwrap().lock_owned();
        while_another_is_inside(&domain, move || sent, || wait(&domain));
        let sent = domain.read_lock_owned();
        while_another_is_inside(&domain, move || sent, || wait(&domain));
    }
}

#[test]
fn who_asks_inside_its_section_for_a_grace_period_from_before_is_not_found() {
    for (domain, anonymous) in [(domain(), false), (domain(), true)] {
        let other = domain.reader().unwrap();
        let held = other.lock_owned();
        let cookie = domain.start_poll();
        let reader = domain.reader().unwrap();
        let mine = (!anonymous).then(|| reader.lock());
        let mine_too = anonymous.then(|| domain.read_lock());
        // A later one has found this section: what is waited for is the earlier.
        assert!(!domain.poll(domain.cookie()));
        while_another_is_inside(&domain, move || held, || domain.cond_synchronize(cookie));
        drop((mine, mine_too));
    }
}

#[test]
fn who_waits_inside_a_section_of_another_domain_is_not_found() {
    let (domain, other) = (domain(), domain());
    let reader = other.reader().unwrap();
    let (_inside, _too) = (reader.lock(), other.read_lock());
    for wait in WAITS {
        wait(&domain);
    }
}

#[test]
fn a_callback_that_waits_for_another_domain_is_not_found() {
    let (domain, other) = (domain(), domain());
    for wait in WAITS {
        let other = other.clone();
        domain.call(Callback::try_new(move || wait(&other)).unwrap());
        domain.synchronize();
    }
}

#[test]
fn who_waits_while_another_thread_runs_a_callback_is_not_found() {
    let domain = domain();
    let (run, runs) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let blocks = move || {
        run.send(()).unwrap();
        ends.recv().unwrap();
    };
    domain.call(Callback::try_new(blocks).unwrap());
    let ticker = {
        let domain = domain.clone();
        thread::spawn(move || while domain.tick() {})
    };
    runs.recv().unwrap();
    for wait in [Srcu::synchronize, Srcu::synchronize_expedited] {
        wait(&domain);
    }
    end.send(()).unwrap();
    domain.barrier();
    ticker.join().unwrap();
}

/// A host that does not say what runs.
struct Silent(Host);

// SAFETY: as the host, which leaves out what may be left out.
unsafe impl Layer for Silent {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.0
    }

    fn context(&self) -> Option<Context> {
        None
    }
}

#[test]
fn on_a_platform_that_does_not_say_what_runs_nobody_is_found() {
    let domain = Srcu::try_new(Arc::new(Silent(Host::new())), Config::default()).unwrap();
    for wait in WAITS {
        let reader = domain.reader().unwrap();
        while_another_is_inside(&domain, || reader.lock_owned(), || wait(&domain));
    }
    // One that waits in a callback of its own, where that happens to go well.
    let same = domain.clone();
    domain.call(Callback::try_new(move || same.synchronize()).unwrap());
    domain.synchronize();
    assert_eq!(domain.stats().callbacks, 1);
}

/// A value that waits for a grace period when it is dropped.
struct Waits(Srcu, u32);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.synchronize();
    }
}

#[test]
fn a_value_that_came_too_late_may_wait_when_it_is_dropped() {
    let domain = domain();
    let make = |number| RcuBox::try_new(Waits(domain.clone(), number)).unwrap();
    let value = Rcu::new(&domain, make(1));
    let mut is_late = true;
    let updated = value.update(|old| {
        // Another writer comes between, once.
        if std::mem::take(&mut is_late) {
            std::mem::forget(value.replace(make(10)));
        }
        Ok::<_, ()>(make(old.1 + 1))
    });
    assert_eq!(updated.unwrap().synchronize().1, 10);
    assert_eq!(value.load(&domain.read_lock()).1, 11);
}
