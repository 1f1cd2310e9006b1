//! Who is registered, to be told of changes.

use std::sync::Arc;

use super::{HostSpace, Notifier};
use crate::lock::lock;

/// Names a registered notifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotifierId(u64);

/// Who is registered; replaced as a whole, so that whoever calls them holds no lock that says who they are.
#[derive(Clone, Default)]
pub(super) struct Registered(Arc<[(NotifierId, Arc<dyn Notifier>)]>);

impl Registered {
    /// Tells one after the other.
    pub(super) fn tell(&self, what: impl Fn(&dyn Notifier)) {
        self.ask(what).for_each(drop);
    }

    /// Asks one after the other.
    pub(super) fn ask<T>(&self, what: impl Fn(&dyn Notifier) -> T) -> impl Iterator<Item = T> {
        self.0.iter().map(move |(_, notifier)| what(&**notifier))
    }
}

#[derive(Default)]
pub(super) struct Notifiers {
    registered: Registered,
    next: u64,
}

impl HostSpace {
    /// Has `notifier` told of changes from now on, until [`HostSpace::unregister`]. Waits for a change under way.
    pub fn register(&self, notifier: Arc<dyn Notifier>) -> NotifierId {
        self.edit_notifiers(|notifiers| {
            let id = NotifierId(notifiers.next);
            notifiers.next += 1;
            let Registered(all) = &mut notifiers.registered;
            *all = all.iter().cloned().chain([(id, notifier)]).collect();
            id
        })
    }

    /// Has a notifier told no more. Waits for a change under way: the notifier is not being called when this returns.
    pub fn unregister(&self, id: NotifierId) {
        self.edit_notifiers(|notifiers| {
            let Registered(all) = &mut notifiers.registered;
            *all = all.iter().filter(|(registered, _)| *registered != id).cloned().collect();
        });
    }

    fn edit_notifiers<T>(&self, edit: impl FnOnce(&mut Notifiers) -> T) -> T {
        let _changes = self.changes();
        let _sharing = self.sharing();
        edit(&mut lock(&self.notifiers))
    }

    pub(super) fn registered(&self) -> Registered {
        lock(&self.notifiers).registered.clone()
    }
}
