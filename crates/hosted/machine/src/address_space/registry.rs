//! The notifiers that are registered.

use std::sync::Arc;

use mayfly_platform::no_unwind;

use super::notifier::Notifier;

/// Names a registered notifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotifierId(u64);

/// All registered notifiers. The list is replaced as a whole, so that a thread that calls them does not hold its lock.
#[derive(Clone, Default)]
pub(super) struct Registered(Arc<[(NotifierId, Arc<dyn Notifier>)]>);

impl Registered {
    /// Tells one after the other.
    pub(super) fn tell(&self, what: impl Fn(&dyn Notifier)) {
        self.ask(what).for_each(drop);
    }

    /// Asks one after the other. One that panics ends the program: it may still use what is about to change.
    pub(super) fn ask<T>(&self, what: impl Fn(&dyn Notifier) -> T) -> impl Iterator<Item = T> {
        self.0.iter().map(move |(_, notifier)| no_unwind(|| what(&**notifier)))
    }
}

#[derive(Default)]
pub(super) struct Notifiers {
    registered: Registered,
    next: u64,
}

impl Notifiers {
    pub(super) fn registered(&self) -> Registered {
        self.registered.clone()
    }

    pub(super) fn add(&mut self, notifier: Arc<dyn Notifier>) -> NotifierId {
        let id = NotifierId(self.next);
        self.next += 1;
        let Registered(all) = &mut self.registered;
        *all = all.iter().cloned().chain([(id, notifier)]).collect();
        id
    }

    pub(super) fn remove(&mut self, id: NotifierId) {
        let Registered(all) = &mut self.registered;
        *all = all.iter().filter(|(registered, _)| *registered != id).cloned().collect();
    }
}
