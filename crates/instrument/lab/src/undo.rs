//! What a run has changed on its host, and how the run puts it back.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something on the host that a run has changed.
pub trait Changed: Send + Sync {
    /// Puts it back as it was, once; on whichever thread, whatever is done with it meanwhile.
    fn put_back(&self);
}

/// What has been changed so far. An experiment keeps here what it changes, so that code that ends the process early can
/// put it back first. Clones share one list.
#[derive(Clone, Default)]
pub struct Undo {
    changed: Arc<Mutex<Vec<Arc<dyn Changed>>>>,
}

impl Undo {
    /// Keeps it, until what is returned is dropped: then it is put back.
    #[must_use]
    pub fn keep(&self, changed: Arc<dyn Changed>) -> Kept {
        self.list().push(Arc::clone(&changed));
        Kept { undo: self.clone(), changed }
    }

    /// Puts back all there is.
    pub fn put_all_back(&self) {
        // What is put back late may hang on what was changed before.
        for changed in std::mem::take(&mut *self.list()).into_iter().rev() {
            changed.put_back();
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<dyn Changed>>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Undo").field("changed", &self.list().len()).finish()
    }
}

/// That something is changed; dropping it puts that back.
pub struct Kept {
    undo: Undo,
    changed: Arc<dyn Changed>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.undo.list().retain(|other| !Arc::ptr_eq(other, &self.changed));
        self.changed.put_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Noted(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Changed for Noted {
        fn put_back(&self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn what_is_still_changed_is_put_back_from_the_last_to_the_first() {
        let (undo, notes) = (Undo::default(), Arc::<Mutex<Vec<_>>>::default());
        let keep = |name| undo.keep(Arc::new(Noted(name, Arc::clone(&notes))));
        let (first, second, third) = (keep("first"), keep("second"), keep("third"));
        drop(second);
        assert_eq!(*notes.lock().unwrap(), ["second"]);
        undo.clone().put_all_back();
        assert_eq!(*notes.lock().unwrap(), ["second", "third", "first"]);
        undo.put_all_back();
        assert_eq!(notes.lock().unwrap().len(), 3);
        drop((first, third));
    }
}
