//! The domain, as its users hold it.

use alloc::sync::Arc;
use core::ptr::NonNull;

use mayfly_platform::Platform;
use mayfly_platform::memory::{OutOfMemory, Shared};
use mayfly_platform::sync::Ordering;

use crate::anonymous::{Anonymous, AnonymousGuard};
use crate::callback::Callback;
use crate::config::{Config, Pace};
use crate::domain::{Domain, Urgency};
use crate::reader::{Reader, Registry};
use crate::stats::Stats;

/// Why a domain cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// No memory for the domain.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The grace periods of [`Pace::Linux`] are run by a worker, and there is none.
    #[error("a domain paced as Linux needs a worker")]
    NoWorker,
    /// [`Pace::Linux`] with no jiffies a second.
    #[error("a domain paced as Linux needs at least one jiffy a second")]
    NoJiffies,
}

/// Names the grace period that [`Srcu::start_poll`] asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "a grace period that nobody asks about need not be started"]
pub struct Cookie(u64);

/// An SRCU domain: readers, and grace periods that wait for them and for nobody else's. A handle; clones are the same
/// domain.
#[derive(Clone)]
pub struct Srcu {
    domain: Shared<Domain>,
}

impl Srcu {
    /// A domain on `platform`, which decides here and for good whether its readers are fenced ([`Srcu::is_fenced`]).
    ///
    /// # Errors
    ///
    /// [`BuildError`] says what is missing.
    pub fn try_new(platform: Arc<dyn Platform>, config: Config) -> Result<Self, BuildError> {
        if let Pace::Linux { hz } = config.pace {
            if hz == 0 {
                return Err(BuildError::NoJiffies);
            }
            if config.worker.is_none() {
                return Err(BuildError::NoWorker);
            }
        }
        Ok(Self { domain: Shared::try_new(Domain::new(platform, config))? })
    }

    /// Whether readers execute a full fence when they enter and leave (`true`), or plain stores only, and the
    /// platform's asymmetric barrier makes up for it.
    pub fn is_fenced(&self) -> bool {
        self.domain.fenced
    }

    /// A reader of its own record: for a vCPU, or a thread that reads often.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`], where no record is free.
    pub fn reader(&self) -> Result<Reader, OutOfMemory> {
        Reader::register(self)
    }

    /// Enters a section without a reader. Two atomic read-modify-writes on a cache line that all such sections share:
    /// for those who read seldom.
    pub fn read_lock(&self) -> AnonymousGuard<'_> {
        AnonymousGuard::enter(self)
    }

    /// Waits until every section that began before this call is over, asleep as soon as one is found.
    ///
    /// The caller drives the grace period itself: where no reader is inside, it neither sleeps nor waits for another
    /// thread. Must not be called from inside a section of this domain, which it would wait for.
    ///
    /// Everything deferred before the call is then ready, and runs before this returns (or in whoever is running
    /// callbacks at the moment); but where the domain has a worker, and more than 64 callbacks are deferred, the worker
    /// is called to run them.
    pub fn synchronize(&self) {
        self.synchronize_at(Urgency::Lazy);
    }

    /// As [`Srcu::synchronize`], and looks at the readers for a while before it sleeps: shorter where sections are, at
    /// the price of the CPU time.
    pub fn synchronize_expedited(&self) {
        self.synchronize_at(Urgency::Expedited);
    }

    /// Runs `callback` after a grace period that nobody is in a hurry for: it rides along with the next one that
    /// somebody waits for, or the worker (the embedder's [`Srcu::tick`]) starts one for all that has gathered.
    ///
    /// Does not wait, unless the hard bound of [`Limits`](crate::Limits) is reached: then it waits for a grace period
    /// and runs `callback` itself. Past the soft bound it may run what is ready. So it must not be called from inside a
    /// section, nor from a callback; there, use [`Srcu::try_call`].
    pub fn call(&self, callback: Callback) {
        match self.defer(callback) {
            Ok(false) => {}
            Ok(true) => self.domain.settle(),
            Err(callback) => self.domain.run_after_grace_period(callback),
        }
    }

    /// As [`Srcu::call`], and neither waits nor runs a callback, so it may be called from inside a section, and from a
    /// callback. Past the soft bound it calls the worker, if there is one.
    ///
    /// # Errors
    ///
    /// Gives `callback` back where the hard bound is reached.
    pub fn try_call(&self, callback: Callback) -> Result<(), Callback> {
        if self.defer(callback)? {
            self.domain.leave_to_worker();
        }
        Ok(())
    }

    /// As [`Srcu::call`], with a grace period that starts at once: `callback`, and all that was deferred before it,
    /// runs as soon as the readers that are inside now have left. In the worker; without one, here if no reader is
    /// inside, else with the next tick or waiter.
    pub fn call_expedited(&self, callback: Callback) {
        match &self.domain.linux {
            None => {
                self.call(callback);
                self.domain.expedite();
            }
            Some(linux) => {
                linux.call(&self.domain, Some(callback), true);
                self.want_worker();
            }
        }
    }

    /// Waits until everything deferred before this call has run. Not from inside a section, nor from a callback.
    pub fn barrier(&self) {
        match &self.domain.linux {
            None => {
                self.domain.wait_for(self.domain.snapshot(), Urgency::Expedited);
                self.domain.run_all_ready();
            }
            Some(linux) => linux.barrier(self),
        }
    }

    /// Starts a grace period without waiting for it.
    pub fn start_poll(&self) -> Cookie {
        match &self.domain.linux {
            None => {
                let cookie = self.domain.snapshot();
                self.domain.advance(cookie);
                Cookie(cookie)
            }
            Some(linux) => {
                let seq = linux.call(&self.domain, None, false);
                self.want_worker();
                Cookie(seq)
            }
        }
    }

    /// Names the grace period that would be asked for now, and leaves it to [`Srcu::poll`] to start it, or to anybody
    /// else who waits meanwhile. Costs a fence. (Linux: `get_state_synchronize_srcu`.) A domain paced as Linux starts
    /// it.
    pub fn cookie(&self) -> Cookie {
        match &self.domain.linux {
            None => Cookie(self.domain.snapshot()),
            Some(_) => self.start_poll(),
        }
    }

    /// Whether every section that began before `cookie` was made is over. Looks at the readers; never sleeps.
    pub fn poll(&self, cookie: Cookie) -> bool {
        match &self.domain.linux {
            None => self.domain.advance(cookie.0),
            Some(linux) => linux.is_done(&self.domain, cookie.0),
        }
    }

    /// Waits until every section that began before `cookie` was made is over; returns at once where they are.
    pub fn cond_synchronize(&self, cookie: Cookie) {
        match &self.domain.linux {
            None => {
                self.domain.wait_for(cookie.0, Urgency::Lazy);
                self.domain.settle();
            }
            Some(_) if self.poll(cookie) => {}
            Some(_) => self.synchronize(),
        }
    }

    /// The embedder's tick, where there is no worker: does what can be done for what is deferred without waiting.
    /// Returns whether something still is.
    pub fn tick(&self) -> bool {
        self.domain.linux.is_none() && self.domain.tick()
    }

    /// For an embedder that is about to let go of its domain: runs what is deferred as far as that needs no waiting,
    /// and has the worker let go of the domain, so that it is freed with its last handle, here, and not at the worker's
    /// next turn.
    pub fn wind_up(&self) {
        self.tick();
        if let Some(worker) = &self.domain.worker
            && self.domain.attached.load(Ordering::Relaxed)
        {
            worker.let_go(self);
        }
    }

    /// What the domain has done so far.
    pub fn stats(&self) -> Stats {
        self.domain.stats()
    }

    /// Whether both are the same domain.
    #[inline]
    pub fn is(&self, other: &Self) -> bool {
        self.domain.is(&other.domain)
    }

    /// Takes `callback` unless the bound is reached. Returns whether there is so much that what is ready should run.
    fn defer(&self, callback: Callback) -> Result<bool, Callback> {
        match &self.domain.linux {
            None => Domain::defer(self, callback),
            Some(linux) => {
                linux.call(&self.domain, Some(callback), false);
                self.want_worker();
                Ok(false)
            }
        }
    }

    fn synchronize_at(&self, urgency: Urgency) {
        match &self.domain.linux {
            None => {
                self.domain.wait_for(self.domain.snapshot(), urgency);
                self.domain.settle();
            }
            Some(linux) => linux.synchronize(self, urgency == Urgency::Expedited),
        }
    }

    /// Whether there is nobody who could have found what the caller has unpublished; a domain paced as Linux never
    /// asks.
    pub(crate) fn is_without_readers(&self) -> bool {
        self.domain.linux.is_none() && self.domain.is_without_readers()
    }

    /// Has the worker do what has just become due.
    pub(crate) fn want_worker(&self) {
        let Some(worker) = &self.domain.worker else { return };
        if self.domain.attached.swap(true, Ordering::AcqRel) {
            worker.want_at(self.domain.wanted(|| mayfly_platform::time::Instant::NEVER));
        } else {
            worker.attach(self.clone());
        }
    }

    pub(crate) fn inner(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.domain.registry
    }

    pub(crate) fn anonymous(&self) -> &Anonymous {
        &self.domain.anonymous
    }

    #[cold]
    pub(crate) fn reader_left(&self) {
        self.domain.reader_left();
    }

    pub(crate) fn as_raw(&self) -> NonNull<()> {
        Shared::as_raw(&self.domain)
    }

    pub(crate) fn into_raw(self) -> NonNull<()> {
        Shared::into_raw(self.domain)
    }

    /// # Safety
    ///
    /// `raw` is an ownership given up by [`Srcu::into_raw`], or as [`Srcu::as_raw`] with the handle forgotten.
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: as the caller promises.
        Self { domain: unsafe { Shared::from_raw(raw) } }
    }
}

impl core::fmt::Debug for Srcu {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Srcu").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
