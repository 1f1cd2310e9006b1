//! The domains that a worker has something to do for, and the threads that sleep until it does; both under its lock.
//!
//! Domains are linked through themselves, so that neither listing one nor taking one off needs memory. The list owns
//! none of them: see `handle` for why what is on it is valid.

use core::cell::Cell;
use core::ptr::{NonNull, null, null_mut};

use mayfly_platform::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use mayfly_platform::time::Instant;

use crate::handle::Counted;

/// A domain's place on the list: all of it the list's, but for `next` and `due` on the way there.
pub(crate) struct Link {
    pub(crate) next: AtomicPtr<Counted>,
    before: AtomicPtr<Counted>,
    is_listed: AtomicBool,
    /// When the domain wants its turn, in nanoseconds.
    pub(crate) due: AtomicU64,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicPtr::new(null_mut()),
            before: AtomicPtr::new(null_mut()),
            is_listed: AtomicBool::new(false),
            due: AtomicU64::new(0),
        }
    }
}

/// Domains in the order in which they get their turn.
pub(crate) struct Roster {
    first: *mut Counted,
    last: *mut Counted,
    len: usize,
}

// SAFETY: domains may be used by all threads; their places on the list are used under the lock that this is under.
unsafe impl Send for Roster {}

impl Roster {
    pub(crate) fn new() -> Self {
        Self { first: null_mut(), last: null_mut(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// # Safety
    ///
    /// `domain` is valid until it is taken off, and on no list.
    pub(crate) unsafe fn push(&mut self, domain: NonNull<Counted>, due: Instant) {
        // SAFETY: valid, as the caller says of this one, and has said of those on the list.
        let (link, last) = unsafe { (&domain.as_ref().link, self.last.as_ref()) };
        link.due.store(due.as_nanos(), Ordering::Relaxed);
        link.next.store(null_mut(), Ordering::Relaxed);
        link.before.store(self.last, Ordering::Relaxed);
        link.is_listed.store(true, Ordering::Relaxed);
        match last {
            Some(last) => last.link.next.store(domain.as_ptr(), Ordering::Relaxed),
            None => self.first = domain.as_ptr(),
        }
        self.last = domain.as_ptr();
        self.len += 1;
    }

    /// Takes off the domain whose turn it is, and says when it wanted it.
    pub(crate) fn pop(&mut self) -> Option<(NonNull<Counted>, Instant)> {
        let first = NonNull::new(self.first)?;
        // SAFETY: on the list, so valid.
        let due = unsafe { first.as_ref() }.link.due.load(Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { self.remove(first) };
        Some((first, Instant::from_nanos(due)))
    }

    /// Takes `domain` off, if it is listed.
    ///
    /// # Safety
    ///
    /// `domain` is valid, and on no other list.
    pub(crate) unsafe fn remove(&mut self, domain: NonNull<Counted>) {
        // SAFETY: as the caller says.
        let link = unsafe { &domain.as_ref().link };
        if !link.is_listed.swap(false, Ordering::Relaxed) {
            return;
        }
        let before = link.before.load(Ordering::Relaxed);
        let next = link.next.load(Ordering::Relaxed);
        // SAFETY: the neighbours are on the list, so valid.
        match unsafe { before.as_ref() } {
            Some(before) => before.link.next.store(next, Ordering::Relaxed),
            None => self.first = next,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.link.before.store(before, Ordering::Relaxed),
            None => self.last = before,
        }
        self.len -= 1;
    }

    /// When the first of all wants its turn; [`Instant::NEVER`] where none is listed.
    pub(crate) fn earliest(&self) -> Instant {
        let mut at = self.first;
        let due = core::iter::from_fn(|| {
            // SAFETY: null, or on the list, so valid.
            let link = unsafe { &at.as_ref()?.link };
            at = link.next.load(Ordering::Relaxed);
            Some(Instant::from_nanos(link.due.load(Ordering::Relaxed)))
        });
        due.min().unwrap_or(Instant::NEVER)
    }
}

/// A thread that sleeps, on its stack.
pub(crate) struct Sleeper {
    until: Instant,
    next: Cell<*const Sleeper>,
}

impl Sleeper {
    pub(crate) fn until(until: Instant) -> Self {
        Self { until, next: Cell::new(null()) }
    }
}

/// Threads that sleep.
pub(crate) struct Sleepers {
    first: *const Sleeper,
}

// SAFETY: what the list leads to is valid on all threads while it is listed, and used under the lock that this is
// under.
unsafe impl Send for Sleepers {}

impl Sleepers {
    pub(crate) fn new() -> Self {
        Self { first: null() }
    }

    /// # Safety
    ///
    /// `sleeper` is valid, where it is, until it is removed.
    pub(crate) unsafe fn add(&mut self, sleeper: &Sleeper) {
        sleeper.next.set(self.first);
        self.first = sleeper;
    }

    pub(crate) fn remove(&mut self, sleeper: &Sleeper) {
        let mut at = self.first;
        if at == sleeper {
            self.first = sleeper.next.get();
        }
        // SAFETY: null, or listed, so valid.
        while let Some(other) = unsafe { at.as_ref() } {
            if other.next.get() == core::ptr::from_ref(sleeper) {
                other.next.set(sleeper.next.get());
            }
            at = other.next.get();
        }
    }

    /// Until when the first of them sleeps, if any does.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        let mut at = self.first;
        core::iter::from_fn(|| {
            // SAFETY: null, or listed, so valid.
            let sleeper = unsafe { at.as_ref() }?;
            at = sleeper.next.get();
            Some(sleeper.until)
        })
        .min()
    }
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn of_those_who_sleep_the_first_to_wake_counts_until_it_has() {
        let [early, late, later] = [1, 2, 3].map(|at| Sleeper::until(Instant::from_nanos(at)));
        let mut sleepers = Sleepers::new();
        let earliest = |sleepers: &Sleepers| sleepers.earliest().map(Instant::as_nanos);
        assert_eq!(earliest(&sleepers), None);
        for sleeper in [&late, &early, &later] {
            // SAFETY: all are removed before they go.
            unsafe { sleepers.add(sleeper) };
        }
        for (left, sleeper) in [(Some(1), &late), (Some(3), &early), (None, &later)] {
            sleepers.remove(sleeper);
            assert_eq!(earliest(&sleepers), left);
        }
    }
}
