//! The gate under loom: who has shut it is alone, finds all that was done inside before, and those that come in later find what it
//! has done.

#![cfg(mayfly_loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use mayfly_desk::Gate;

struct World {
    gate: Gate,
    value: UnsafeCell<u32>,
}

// SAFETY: of the value alone, which is what is tested: loom finds two accesses that are not in order.
unsafe impl Sync for World {}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { gate: Gate::default(), value: UnsafeCell::new(0) })
    }

    /// A caller that comes in once, if it is let in. Returns whether it was.
    fn visits(&self) -> bool {
        let inside = self.gate.enter();
        if inside.is_some() {
            self.add();
        }
        inside.is_some()
    }

    /// The one that has it for itself, if nobody is inside. It looks once: what it finds later, it finds at the first look in
    /// another execution. Returns whether it had it.
    fn shuts(&self) -> bool {
        self.gate.shut();
        let is_alone = self.gate.is_empty();
        if is_alone {
            self.add();
            self.gate.open();
        }
        is_alone
    }

    fn add(&self) {
        // SAFETY: loom says if it is not so.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }
}

#[test]
fn what_is_done_inside_and_what_is_done_while_it_is_shut_are_in_order() {
    loom::model(|| {
        let world = World::new();
        let (visitor, host) = (world.clone(), world.clone());
        let visitor =
            thread::spawn(move || u32::from(visitor.visits()) + u32::from(visitor.visits()));
        let host = thread::spawn(move || u32::from(host.shuts()));
        let done = visitor.join().unwrap() + host.join().unwrap();
        // SAFETY: both have ended.
        world.value.with(|value| assert_eq!(unsafe { *value }, done));
    });
}

#[test]
fn nobody_comes_in_while_it_is_shut_and_those_inside_are_waited_for() {
    loom::model(|| {
        let gate = Gate::default();
        let first = gate.enter();
        assert!(first.is_some());
        gate.shut();
        assert!(gate.enter().is_none() && !gate.is_empty());
        drop(first);
        assert!(gate.is_empty() && gate.enter().is_none() && gate.is_empty());
        gate.open();
        assert!(gate.enter().is_some());
    });
}
