//! The drop of what was retired in one domain is deferred in no other, whose grace periods say nothing of its readers.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mayfly_platform::Host;
use mayfly_srcu::{Callback, Config, Rcu, RcuBox, Srcu};

fn domain() -> Srcu {
    Srcu::try_new(Arc::new(Host::new()), Config::default()).unwrap()
}

#[test]
fn what_was_retired_is_refused_by_another_domain_and_not_freed_under_its_readers() {
    let (domain, other) = (domain(), domain());
    let defers: [fn(&Srcu, Callback); 3] =
        [Srcu::call, Srcu::call_expedited, |other, callback| drop(other.try_call(callback))];
    for defer in defers {
        let held = Arc::new(());
        let value = Rcu::new(&domain, RcuBox::try_new(Arc::clone(&held)).unwrap());
        let section = domain.read_lock();
        let read = value.load(&section);
        let old = value.replace(RcuBox::try_new(Arc::new(())).unwrap());
        let callback = old.into_callback();
        let refused = catch_unwind(AssertUnwindSafe(|| defer(&other, callback)));
        assert!(refused.is_err(), "another domain takes it");
        other.barrier();
        assert_eq!(Arc::strong_count(read), 2);
        drop(section);
    }
}

#[test]
fn what_was_retired_is_leaked_where_its_callback_is_dropped() {
    let domain = domain();
    let held = Arc::new(());
    let value = Rcu::new(&domain, RcuBox::try_new(Arc::clone(&held)).unwrap());
    let section = domain.read_lock();
    let read = value.load(&section);
    drop(value.replace(RcuBox::try_new(Arc::new(())).unwrap()).into_callback());
    assert_eq!(Arc::strong_count(read), 2);
    drop(section);
}
