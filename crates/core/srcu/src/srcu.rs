//! The domain, as a user holds it.
//!
//! `srcu.rs`, `section.rs`, `reader.rs` and `anonymous/guard.rs` import each other: a domain hands out the guards of its
//! sections, and each guard names its domain.

use alloc::sync::Arc;
use core::ptr::NonNull;

use mayfly_platform::Platform;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{Ordering, fence};

use crate::anonymous::Anonymous;
use crate::anonymous::guard::{AnonymousGuard, OwnedAnonymousGuard};
use crate::bell::{Asked, Bell};
use crate::callback::Callback;
use crate::config::{Config, Pace};
use crate::cookie::Cookie;
use crate::domain::Domain;
use crate::domain::waiting::Urgency;
use crate::error::BuildError;
use crate::handle::Handle;
use crate::reader::Reader;
use crate::stats::Stats;
use crate::world::World;

/// An SRCU domain: readers, and grace periods that wait for them and for no other domain's. A handle; clones are the
/// same domain. The last one to be dropped runs what is deferred still, there and then, and frees the domain.
#[derive(Clone)]
pub struct Srcu {
    handle: Handle,
}

impl Srcu {
    /// A domain on `platform`, which decides here and for good whether its readers are fenced ([`Srcu::is_fenced`]).
    ///
    /// # Errors
    ///
    /// [`BuildError`] says what is missing.
    pub fn try_new(platform: Arc<dyn Platform>, config: Config) -> Result<Self, BuildError> {
        let world = World::new(platform);
        if let Pace::Linux { hz } = config.pace {
            if hz == 0 {
                return Err(BuildError::NoJiffies);
            }
            if config.worker.is_none() {
                return Err(BuildError::NoWorker);
            }
        }
        match &config.worker {
            Some(worker) if worker.world().identity() != world.identity() => {
                return Err(BuildError::WorkerElsewhere);
            }
            None if config.run_inline == 0 && !config.ticks => return Err(BuildError::NobodyRuns),
            _ => {}
        }
        Ok(Self { handle: Handle::try_new(world, config)? })
    }

    /// Whether readers execute a full fence when they enter (`true`), or stores only, and the platform's asymmetric
    /// barrier makes up for it.
    pub fn is_fenced(&self) -> bool {
        self.handle.fenced
    }

    /// A reader of its own record: for a vCPU, or a thread that reads often.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`], where no record is free.
    pub fn reader(&self) -> Result<Reader, OutOfMemory> {
        Reader::register(self)
    }

    /// Enters a section without a reader: an atomic update of a cache line shared with some other threads at either
    /// end. For threads that read seldom.
    ///
    /// # Panics
    ///
    /// With half of all `usize` numbers of such guards alive, as only leaks make them.
    #[inline]
    pub fn read_lock(&self) -> AnonymousGuard<'_> {
        AnonymousGuard::enter(self)
    }

    /// As [`Srcu::read_lock`], with a guard that may be sent to another thread, or kept in a structure.
    pub fn read_lock_owned(&self) -> OwnedAnonymousGuard {
        OwnedAnonymousGuard::enter(self.clone())
    }

    /// Waits until every section that began before this call is over, asleep as soon as one is found.
    ///
    /// The caller drives the grace period itself: where no reader is inside, it neither sleeps nor waits for another
    /// thread. It then runs what was deferred before the call, [`Config::run_inline`] callbacks at most, and leaves the
    /// rest to the worker, or to the next thread that waits or ticks.
    ///
    /// Must not be called from inside a section of this domain, which it would wait for, nor from a callback. Debug
    /// builds find that, where the platform says what runs ([`Platform::context`]), and panic.
    pub fn synchronize(&self) {
        self.synchronize_at(Urgency::Lazy);
    }

    /// As [`Srcu::synchronize`], and looks at the readers for a while before it sleeps: shorter where sections are, at
    /// the price of the CPU time.
    pub fn synchronize_expedited(&self) {
        self.synchronize_at(Urgency::Expedited);
    }

    /// Runs `callback` after a grace period that no caller hurries: the next one that
    /// a thread waits for, or the worker (the embedder's [`Srcu::tick`]) starts one for all that has gathered.
    ///
    /// Does not wait, unless the hard bound of [`Limits`](crate::Limits) is reached: then it waits for a grace period
    /// and runs `callback` itself. Past the soft bound it may run what is ready, [`Config::run_inline`] callbacks at
    /// most. So it must not be called from inside a section, nor from a callback; there, use [`Srcu::try_call`].
    ///
    /// # Panics
    ///
    /// If `callback` is of a [`Retired`](crate::Retired) of another domain.
    pub fn call(&self, callback: Callback) {
        match self.defer(callback) {
            Ok(false) => {}
            Ok(true) => self.handle.hurry(),
            Err(callback) => self.handle.run_after_grace_period(callback),
        }
    }

    /// As [`Srcu::call`], and neither waits nor runs a callback, so it may be called from inside a section, and from a
    /// callback. Past the soft bound it calls the worker, if there is one.
    ///
    /// # Errors
    ///
    /// Gives `callback` back where the hard bound is reached.
    ///
    /// # Panics
    ///
    /// As [`Srcu::call`].
    pub fn try_call(&self, callback: Callback) -> Result<(), Callback> {
        if self.defer(callback)? {
            self.handle.drive();
            self.handle.leave_to_worker();
        }
        Ok(())
    }

    /// As [`Srcu::call`], and then [`Srcu::expedite`].
    ///
    /// # Panics
    ///
    /// As [`Srcu::call`].
    pub fn call_expedited(&self, callback: Callback) {
        match &self.handle.linux {
            None => {
                self.call(callback);
                self.handle.expedite();
            }
            Some(linux) => {
                self.check(&callback);
                linux.call(&self.handle, Some(callback), true);
                self.want_worker();
            }
        }
    }

    /// Has everything deferred so far run as soon as the readers that are inside now have left, with one grace period
    /// that starts at once. It runs in the worker; without one, here if no reader is inside ([`Config::run_inline`]
    /// callbacks at most), else with the next tick or waiter. Waits for no thread. From a callback it runs nothing: the
    /// thread that runs the callback does, behind it, if its share is not used up.
    pub fn expedite(&self) {
        match &self.handle.linux {
            None => self.handle.expedite(),
            Some(linux) => {
                linux.call(&self.handle, None, true);
                self.want_worker();
            }
        }
    }

    /// Runs everything deferred before this call, and waits for the threads that have taken some of it up. Not from
    /// inside a section, nor from a callback, as [`Srcu::synchronize`].
    pub fn barrier(&self) {
        self.handle.forbid_callbacks();
        match &self.handle.linux {
            None => {
                let cookie = self.handle.snapshot();
                self.handle.wait_for(cookie, Urgency::Expedited);
                self.handle.run_ready(cookie, usize::MAX);
                self.handle.wait_for_runners();
            }
            Some(linux) => linux.barrier(self),
        }
    }

    /// Starts a grace period without waiting for it.
    pub fn start_poll(&self) -> Cookie {
        match &self.handle.linux {
            None => {
                let cookie = self.handle.snapshot();
                self.handle.advance(cookie);
                self.named(cookie)
            }
            Some(linux) => {
                let seq = linux.call(&self.handle, None, false);
                self.want_worker();
                self.named(seq)
            }
        }
    }

    /// Names the grace period that would be asked for now, and leaves it to [`Srcu::poll`] to start it, or to any other
    /// caller that waits meanwhile. Costs a fence. (Linux: `get_state_synchronize_srcu`.) A domain paced as Linux
    /// starts it.
    pub fn cookie(&self) -> Cookie {
        match &self.handle.linux {
            None => self.named(self.handle.snapshot()),
            Some(_) => self.start_poll(),
        }
    }

    /// Whether every section that began before `cookie` was made is over. Looks at the readers; never sleeps.
    ///
    /// # Panics
    ///
    /// If `cookie` is one of another domain.
    pub fn poll(&self, cookie: Cookie) -> bool {
        let number = self.number(cookie);
        match &self.handle.linux {
            None => self.handle.advance(number),
            Some(linux) => linux.is_done(&self.handle, number),
        }
    }

    /// As [`Srcu::poll`]; where the grace period is not over, `bell` is rung when a reader that holds it up has left, so
    /// that one can sleep until something of many things has come to pass. To be asked again then: others may hold it up
    /// still.
    ///
    /// A domain rings one bell, the first that it was given here; it keeps that until its end. A domain whose readers are
    /// fenced may miss to ring it, and one that is paced as Linux does not: [`Asked::MayRing`].
    ///
    /// # Panics
    ///
    /// If `cookie` is one of another domain.
    pub fn poll_or_ring(&self, cookie: Cookie, bell: &Arc<Bell>) -> Asked {
        let number = self.number(cookie);
        if let Some(linux) = &self.handle.linux {
            return if linux.is_done(&self.handle, number) { Asked::Over } else { Asked::MayRing };
        }
        let is_ours = self.handle.bell.hang(bell);
        // [bell]
        fence(Ordering::SeqCst);
        if self.handle.advance(number) || self.handle.arm(number) {
            Asked::Over
        } else if is_ours && !self.handle.fenced {
            Asked::Rings
        } else {
            Asked::MayRing
        }
    }

    /// Waits until every section that began before `cookie` was made is over; returns at once where they are. Otherwise
    /// as [`Srcu::synchronize`].
    ///
    /// # Panics
    ///
    /// If `cookie` is one of another domain.
    pub fn cond_synchronize(&self, cookie: Cookie) {
        let number = self.number(cookie);
        match &self.handle.linux {
            None => {
                if self.handle.is_complete(number) {
                    return self.handle.settle_here(number);
                }
                self.handle.forbid_callbacks();
                self.handle.wait_for(number, Urgency::Lazy);
                self.handle.settle(number);
            }
            Some(_) if self.poll(cookie) => {}
            Some(_) => self.synchronize(),
        }
    }

    /// The embedder's tick, where there is no worker: does what can be done for what is deferred without waiting.
    /// Returns whether something still is. From a callback it runs nothing, as [`Srcu::expedite`], and returns `true`,
    /// because the callback itself is deferred until it has returned.
    pub fn tick(&self) -> bool {
        self.handle.linux.is_none() && self.handle.tick_here()
    }

    /// What the domain has done so far.
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Whether both are the same domain.
    #[inline]
    pub fn is(&self, other: &Self) -> bool {
        self.handle.is(&other.handle)
    }

    /// Takes `callback` unless the bound is reached. Returns whether there is so much that what is ready should run.
    #[inline]
    fn defer(&self, callback: Callback) -> Result<bool, Callback> {
        self.check(&callback);
        match &self.handle.linux {
            None => Domain::defer(self, callback),
            Some(linux) => {
                linux.call(&self.handle, Some(callback), false);
                self.want_worker();
                Ok(false)
            }
        }
    }

    fn synchronize_at(&self, urgency: Urgency) {
        self.handle.forbid_callbacks();
        match &self.handle.linux {
            None => {
                let cookie = self.handle.snapshot();
                self.handle.wait_for(cookie, urgency);
                self.handle.settle(cookie);
            }
            Some(linux) => linux.synchronize(self, urgency == Urgency::Expedited),
        }
    }

    /// Whether there is no thread that could have found what the caller has unpublished; a domain paced as Linux never
    /// asks.
    pub(crate) fn is_without_readers(&self) -> bool {
        self.handle.linux.is_none() && self.handle.is_without_readers()
    }

    /// Has the worker do what has just become due.
    pub(crate) fn want_worker(&self) {
        if let Some(worker) = &self.handle.worker {
            worker.want(&self.handle);
        }
    }

    fn check(&self, callback: &Callback) {
        assert!(callback.may_be_deferred_in(self.at()), "the callback is one of another domain");
    }

    fn named(&self, number: u64) -> Cookie {
        Cookie { domain: self.at().addr().get(), number }
    }

    fn number(&self, cookie: Cookie) -> u64 {
        let is_ours = cookie.domain == self.at().addr().get()
            && (self.handle.linux.is_some() || self.handle.may_have_given(cookie.number));
        assert!(is_ours, "the cookie is one of another domain");
        cookie.number
    }

    /// Names the domain by where it is.
    pub(crate) fn at(&self) -> NonNull<()> {
        self.handle.at().cast()
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Domain {
        &self.handle
    }

    #[inline]
    pub(crate) fn anonymous(&self) -> &Anonymous {
        &self.handle.anonymous
    }
}

impl core::fmt::Debug for Srcu {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Srcu").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
