//! The host's announcements: that it takes memory away, and that memslots change ([`sequence`](crate::sequence)).

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, Range};

use mayfly_platform::address::Gfn;

use crate::own::Entered;
use crate::sequence::{Announced, Announcement, InvalidationWaiters, Seen};
use crate::space::Space;
use crate::{Format, Stage2};

impl<F: Format> Stage2<F> {
    /// Samples the notifier sequence, for [`Root::grant`](crate::Root::grant) of any frames. A caller samples before it
    /// reads the memslots and asks the host.
    #[inline]
    pub fn sample(&self) -> Seen {
        self.space.sequence.sample()
    }

    /// Whether what the host said of `gfns` (which must not be empty) after `seen` was sampled is still true: no
    /// invalidation of them has begun or ended since. [`Grant::map`](crate::Grant::map) checks that itself; this is for
    /// answers that are not to be mapped.
    ///
    /// # Panics
    ///
    /// In debug builds, if `gfns` is empty.
    pub fn is_current(&self, gfns: &Range<Gfn>, seen: Seen) -> bool {
        self.space.sequence.permits(gfns, seen)
    }

    /// Announces that the host takes something of `gfns` away. Until the end, which is the drop of the returned value,
    /// no fault installs anything there.
    pub fn begin_invalidation(&self, gfns: &Range<Gfn>) -> Invalidation<'_> {
        self.begin_invalidation_of(|announce| announce(gfns.clone()))
    }

    /// As [`Stage2::begin_invalidation`], of the ranges that `places` announces. `places` sees all memslots as they
    /// will be until the end ([`Stage2::change_slots`]). The memory between the ranges is left alone. `places` runs under
    /// a lock: it must neither begin nor end an invalidation of this VM, nor change its memslots, and neither must
    /// anything that it calls.
    ///
    /// # Panics
    ///
    /// In debug builds, where the platform says what [runs here](mayfly_platform::Platform::context), if `places` does
    /// so: it would wait for ever.
    pub fn begin_invalidation_of(
        &self,
        places: impl FnOnce(&mut dyn FnMut(Range<Gfn>)),
    ) -> Invalidation<'_> {
        self.invalidation(self.space.sequence.begin(places, self.mmu()))
    }

    /// Ends an invalidation that was [left](Invalidation::leave).
    ///
    /// # Errors
    ///
    /// The announcement, if it is of another VM: it has not ended, and that VM can end it.
    pub fn end_invalidation(&self, announcement: Announcement) -> Result<(), Announcement> {
        if !self.space.sequence.is_own(announcement.announced()) {
            return Err(announcement);
        }
        self.space.sequence.end(announcement.into_announced(), self.mmu());
        Ok(())
    }

    fn check_outside(&self) {
        assert!(
            !self.space.own.has(self.mmu()),
            "memslots are changed inside an invalidation of the caller's own, and would wait for its end"
        );
    }

    fn invalidation(&self, announced: Announced) -> Invalidation<'_> {
        let entered = self.space.own.enter(self.mmu());
        let (space, announcement) = (&*self.space, Announcement(announced));
        Invalidation { space, announcement, entered, stays: PhantomData }
    }

    /// Whether `announcement` is of all of `gfns` in this VM: whether they may be taken away by it.
    ///
    /// Where more than 16 ranges are announced at once, those beyond count as one that reaches from the first to the
    /// last, but only for frames at which faults are refused, too: those in a region of 2 MiB of which something was
    /// announced, or at a multiple of 128 MiB from one.
    pub fn is_announced(&self, announcement: &Announcement, gfns: &Range<Gfn>) -> bool {
        self.space.sequence.is_announced(announcement.announced(), gfns)
    }

    /// Panics if not: what is mapped again meanwhile would be used when the host has given it away.
    pub(crate) fn check_announced(&self, announcement: &Announcement, gfns: &Range<Gfn>) {
        assert!(self.is_announced(announcement, gfns), "not all of {gfns:?} was announced here");
    }

    /// Whether an invalidation is under way in `gfns` (which must not be empty): an entry there may be frozen for
    /// longer than a compare-exchange.
    ///
    /// # Panics
    ///
    /// In debug builds, if `gfns` is empty.
    #[inline]
    pub fn is_invalidating(&self, gfns: &Range<Gfn>) -> bool {
        self.space.sequence.is_active_in(gfns)
    }

    /// Waits until no invalidation is under way in `gfns`.
    pub fn wait_invalidation(&self, gfns: &Range<Gfn>) {
        self.wait_invalidation_unless(gfns, || false);
    }

    /// As [`Stage2::wait_invalidation`], but returns if `called_off` returns true. It is asked at first, and whenever
    /// the waiters are [made to look again](InvalidationWaiters::look_again). A change before that is not missed.
    pub fn wait_invalidation_unless(&self, gfns: &Range<Gfn>, called_off: impl FnMut() -> bool) {
        self.space.sequence.wait(gfns, called_off, self.mmu());
    }

    /// The waiters for an invalidation to end.
    pub fn invalidation_waiters(&self) -> InvalidationWaiters {
        self.space.sequence.waiters()
    }

    /// Runs `publish`, which publishes new memslots, while no invalidation is under way. It waits for the invalidations
    /// under way, and new ones wait for it. Every fault in `gfns` that had sampled the sequence is refused, because it
    /// may have found a memslot that has changed.
    ///
    /// So an invalidation, which looks up in the memslots where the host's memory is mapped, knows all the places until
    /// its end.
    ///
    /// # Panics
    ///
    /// In debug builds, where the platform says what [runs here](mayfly_platform::Platform::context), if the caller has
    /// an [`Invalidation`] under way itself, or `publish` begins or ends one, or changes memslots: it would wait for
    /// ever.
    pub fn change_slots<T>(&self, gfns: &Range<Gfn>, publish: impl FnOnce() -> T) -> T {
        self.check_outside();
        self.space.sequence.exclude(gfns, publish, self.mmu())
    }

    /// As [`Stage2::change_slots`], where something of `gfns` may have to be taken away: an invalidation of `gfns`
    /// begins before any reader can find the new memslots.
    ///
    /// # Panics
    ///
    /// As [`Stage2::change_slots`].
    pub fn change_slots_and_invalidate<T>(
        &self,
        gfns: &Range<Gfn>,
        publish: impl FnOnce() -> T,
    ) -> (T, Invalidation<'_>) {
        self.check_outside();
        let (published, announced) =
            self.space.sequence.exclude_and_begin(gfns, publish, self.mmu());
        (published, self.invalidation(announced))
    }

    /// Refuses every fault in `gfns` that had sampled the sequence: what it found since is no longer true. Waits for no
    /// invalidation.
    pub fn refuse_faults(&self, gfns: &Range<Gfn>) {
        self.space.sequence.refuse(gfns, self.mmu());
    }
}

/// An invalidation under way, from [`Stage2::begin_invalidation`]; dropped, it ends. Until then its [`Announcement`]
/// can be shown. It stays with the thread that began it; one that another is to end is [left](Invalidation::leave).
#[must_use = "dropped at once, it ends before anything was taken away"]
pub struct Invalidation<'a> {
    space: &'a Space,
    announcement: Announcement,
    entered: Entered,
    stays: PhantomData<*const ()>,
}

impl Invalidation<'_> {
    /// Leaves it to [`Stage2::end_invalidation`] to end it: for hosts that tell of the start and of the end by
    /// different calls.
    pub fn leave(self) -> Announcement {
        let left = ManuallyDrop::new(self);
        left.space.own.leave(&left.entered);
        Announcement(*left.announced())
    }
}

impl Deref for Invalidation<'_> {
    type Target = Announcement;

    fn deref(&self) -> &Announcement {
        &self.announcement
    }
}

impl Drop for Invalidation<'_> {
    fn drop(&mut self) {
        self.space.own.leave(&self.entered);
        self.space.sequence.end(*self.announced(), &*self.space.tables.mmu);
    }
}
