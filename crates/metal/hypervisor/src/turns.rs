//! Whose turn it is: which thread a processor runs next, and for how long. Without locks, hardware or a clock: the
//! caller has a lock around it, and says what time it is.
//!
//! Time is divided between *shares* first, and then between the threads of a share. A VM is a share, with all that the
//! hypervisor does for it. The hypervisor's own threads are another.
//!
//! **Between shares** it is start-time fair queueing. Each share has a virtual time, which advances by the time that
//! its threads have had processors, divided by its weight. A processor takes a thread of the share whose virtual time
//! is least, of those with a thread that waits. The virtual time of the last share that was taken from is the
//! *present*. It never goes back.
//!
//! - A thread is charged for its whole slice when it begins, and gets back what it has not used when it stops. So
//!   several processors that take at the same moment do not all take from the same share.
//! - A thread is charged for the time between the two moments, whenever it stops. So one that sleeps before a tick
//!   is charged like others.
//! - A share whose threads were asleep, or whose threads all run and still use less than its part, is behind the
//!   present. It is behind by [`CREDIT`] of its own processor time at most: what it has not used before is lost.
//! - A share that has not run for [`FORGOTTEN`] has no debt. So a virtual time is never compared with one that is older.
//!
//! **Within a share** it is the same again, with the processor time of each thread, and [`THREAD_CREDIT`]. A thread [in the
//! background](Turn::in_background) begins with a debt where others have a credit: so it comes after those that wake with
//! it, and before one that has run for twice the credit since.
//!
//! **A cap** is a quota of processor time in each [`PERIOD`]. It is charged in advance, too, so that the processors
//! together do not exceed it. A share without quota is *dry*: no processor takes its threads until the next period
//! begins. Of the quota that is not used in a period, a half is kept for the next; time beyond it is taken from the
//! next.

#![expect(
    clippy::inline_always,
    reason = "a switch is one piece of code: `scripts/switches` has a bound for it"
)]

mod budget;
mod dry;
mod heap;
mod patience;
mod queue;
mod share;

pub use patience::Patience;
pub use queue::Turn;
pub use share::Share;

use heap::{ByQuota, ByVirtualTime, Heap};

/// How long a thread has a processor while others want it, in microseconds.
pub const SLICE: u64 = 5_000;
/// How much processor time a share can be behind its part, in microseconds.
pub const CREDIT: u64 = 2 * SLICE;
/// How much processor time a thread can be behind the others of its share, in microseconds.
pub const THREAD_CREDIT: u64 = SLICE;
/// How much processor time the share of a thread that wakes must be ahead of another to take a processor from it, in
/// microseconds.
pub const MARGIN: u64 = 1_000;
/// How often a cap has its quota anew, in microseconds.
pub const PERIOD: u64 = 20_000;
/// How long after it last ran a share has no debt, in microseconds.
pub const FORGOTTEN: u64 = 1_000_000;

/// The ticks of so many microseconds, at least 1.
const fn ticks(microseconds: u64, frequency: u64) -> u64 {
    let ticks = frequency.saturating_mul(microseconds) / 1_000_000;
    if ticks == 0 { 1 } else { ticks }
}

/// Whether the moment `a` is before `b`; both may have gone round.
#[inline]
const fn is_before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// The later of two moments; both may have gone round.
#[inline]
const fn later(a: u64, b: u64) -> u64 {
    if is_before(a, b) { b } else { a }
}

/// Whose turn it is.
pub struct Turns {
    /// The shares that have a thread which waits, unless they are dry.
    ready: Heap<ByVirtualTime>,
    /// The dry ones that have a thread which waits.
    dry: Heap<ByQuota>,
    /// The virtual time of the share that was last taken from.
    present: u64,
    /// Nothing is due before that ([`Turns::is_due`]).
    next_event: u64,
    patience: Patience,
}

impl Turns {
    /// No thread waits.
    #[expect(clippy::new_without_default, reason = "a default is not `const`")]
    pub const fn new() -> Self {
        Self {
            ready: Heap::new(),
            dry: Heap::new(),
            present: 0,
            next_event: u64::MAX,
            patience: Patience::new(),
        }
    }

    /// Whether a thread waits that a processor would take.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        !self.ready.first().is_null()
    }

    /// What threads may wait, and have waited.
    pub fn patience(&mut self) -> &mut Patience {
        &mut self.patience
    }

    /// When something is due, in ticks; `u64::MAX` for never: a share gets its quota, or what the caller has asked for.
    #[inline]
    pub fn next_event(&self) -> u64 {
        self.next_event
    }

    /// Something of the caller's is due at that moment, too.
    pub fn remind(&mut self, at: u64) {
        self.next_event = self.next_event.min(at);
    }

    /// Whether something is due. If so, shares that are to have their quota by `now` have it, and the caller says again
    /// what else is to be due ([`Turns::remind`]). If many are, something is due again at once.
    pub fn is_due(&mut self, now: u64) -> bool {
        let is_due = now >= self.next_event;
        if is_due {
            self.next_event = u64::MAX;
            self.look_at_dry(now);
        }
        is_due
    }

    /// A thread has become able to run: it waits.
    ///
    /// # Safety
    ///
    /// `turn` neither waits nor runs. It and its share stay until it has been taken and has stopped.
    pub unsafe fn wake(&mut self, turn: *mut Turn, now: u64) {
        // SAFETY: the caller's promise. Shares and turns are reached through here alone.
        unsafe {
            let share = &mut *(*turn).share;
            if now.wrapping_sub(share.stopped) > share.terms.forgotten {
                share.virtual_time = self.present.wrapping_sub(share.terms.credit_cost);
                share.stopped = now;
            }
            share.keep_within(self.present);
            let credit = share.terms.thread_credit;
            let credit = if (*turn).is_background { credit.wrapping_neg() } else { credit };
            (*turn).used = later((*turn).used, share.present.wrapping_sub(credit));
            self.changed((*turn).share);
            self.queue((*turn).share, turn, now);
        }
    }

    /// A thread that runs goes on to wait, and the thread whose turn it is, which may be the same, is taken.
    ///
    /// # Safety
    ///
    /// `turn` runs.
    #[inline(always)]
    pub unsafe fn exchange(&mut self, turn: *mut Turn, now: u64) -> Option<*mut Turn> {
        // SAFETY: the caller's promise.
        unsafe {
            let share = self.leave(turn, now);
            self.queue(share, turn, now);
        }
        self.take(now)
    }

    /// A thread that runs stops: it sleeps, or is over.
    ///
    /// # Safety
    ///
    /// `turn` runs.
    #[inline]
    pub unsafe fn stop(&mut self, turn: *mut Turn, now: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            self.leave(turn, now);
        }
    }

    /// The slice of a thread is over. Gives it another, unless a thread waits, or its share is dry. Returns whether it
    /// has one.
    ///
    /// # Safety
    ///
    /// `turn` runs.
    pub unsafe fn prolong(&mut self, turn: *mut Turn, now: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let share = &mut *(*turn).share;
            Self::charge(turn, now);
            if let Some(budget) = &mut share.budget {
                budget.settle(now.wrapping_sub((*turn).began), (*turn).granted);
            }
            ((*turn).began, (*turn).granted) = (now, 0);
            share.keep_within(self.present);
            self.changed((*turn).share);
            let share = &mut *(*turn).share;
            // Those of its own share may wait although the share is dry.
            if self.is_wanted() || !share.waiting.is_empty() || share.is_spent(now) {
                return false;
            }
            self.present = later(self.present, share.virtual_time);
            share.present = later(share.present, (*turn).without_debt(share.terms.thread_credit));
            let (granted, cost) = share.grant();
            share.virtual_time = share.virtual_time.wrapping_add(cost);
            (*turn).granted = granted;
        }
        true
    }

    /// Takes the thread whose turn it is.
    #[inline(always)]
    pub fn take(&mut self, now: u64) -> Option<*mut Turn> {
        // SAFETY: the promise of `wake`: what waits is there.
        unsafe {
            let share = self.ready.first();
            if share.is_null() {
                return None;
            }
            if (*share).budget.is_some() {
                return self.take_capped(share, now);
            }
            Some(self.take_from(share, now, (*share).terms.slice, (*share).terms.slice_cost))
        }
    }

    /// As [`Turns::take`], where the share `share` comes first, and has a cap.
    #[cold]
    unsafe fn take_capped(&mut self, share: *mut Share, now: u64) -> Option<*mut Turn> {
        // SAFETY: the share is the first of those that are ready.
        unsafe {
            if (*share).is_dry(now) {
                self.ready.remove(share);
                self.lay_dry(share);
                return self.take_other(now);
            }
            let (granted, cost) = (*share).begin();
            Some(self.take_from(share, now, granted, cost))
        }
    }

    #[inline(never)]
    fn take_other(&mut self, now: u64) -> Option<*mut Turn> {
        self.take(now)
    }

    /// Takes the first thread of a share, and grants it that.
    #[inline(always)]
    unsafe fn take_from(
        &mut self,
        first: *mut Share,
        now: u64,
        granted: u64,
        cost: u64,
    ) -> *mut Turn {
        // SAFETY: the share is the first of those that are ready; so a thread of it waits.
        unsafe {
            let share = &mut *first;
            let turn = share.waiting.pop();
            self.present = later(self.present, share.virtual_time);
            share.present = later(share.present, (*turn).without_debt(share.terms.thread_credit));
            let waited = now.wrapping_sub((*turn).began);
            if waited > share.longest_wait {
                share.longest_wait = waited;
                self.patience.note(share);
            }
            share.virtual_time = share.virtual_time.wrapping_add(cost);
            let has_others = !share.waiting.is_empty();
            ((*turn).began, (*turn).granted) = (now, granted);
            if has_others {
                self.ready.changed(first);
            } else {
                self.ready.remove(first);
            }
            turn
        }
    }

    /// By how much virtual time a thread that waits comes before one of another share that runs; 0 if it does not, or by
    /// too little to take its processor.
    ///
    /// # Safety
    ///
    /// `waits` waits, and `runs` runs.
    pub unsafe fn precedence(&self, waits: *const Turn, runs: *const Turn, now: u64) -> u64 {
        // SAFETY: the caller's promise.
        let (waits, runs) = unsafe { (&*waits, &*runs) };
        // SAFETY: as above.
        if core::ptr::eq(waits.share, runs.share) || unsafe { (*waits.share).is_dry(now) } {
            return 0;
        }
        // SAFETY: as above.
        let (its, running) = unsafe { (&*waits.share, &*runs.share) };
        let unused = runs.end().wrapping_sub(now).wrapping_mul(running.cost);
        let ahead = running.virtual_time.wrapping_sub(unused).wrapping_sub(its.virtual_time);
        let beyond = ahead.wrapping_sub(its.terms.margin_cost).cast_signed();
        beyond.max(0).cast_unsigned()
    }

    /// The virtual time of a share has changed.
    ///
    /// # Safety
    ///
    /// It is there.
    #[inline(always)]
    unsafe fn changed(&mut self, share: *mut Share) {
        // SAFETY: the caller's promise. One that is in a heap, and lies not dry, is ready.
        unsafe {
            if self.ready.has(share) && !(*share).lies_dry {
                self.ready.changed(share);
            }
        }
    }

    /// Charges a thread for what it has used.
    ///
    /// # Safety
    ///
    /// `turn` runs.
    #[inline(always)]
    unsafe fn charge(turn: *mut Turn, now: u64) -> *mut Share {
        // SAFETY: the caller's promise.
        unsafe {
            let share = (*turn).share;
            let used = now.wrapping_sub((*turn).began);
            (*turn).used = (*turn).used.wrapping_add(used);
            (*share).charge(used, (*turn).granted);
            (*share).stopped = now;
            share
        }
    }

    /// # Safety
    ///
    /// As for [`Turns::stop`].
    #[inline(always)]
    unsafe fn leave(&mut self, turn: *mut Turn, now: u64) -> *mut Share {
        // SAFETY: the caller's promise.
        unsafe {
            let share = Self::charge(turn, now);
            self.changed(share);
            if (*share).budget.is_some() {
                self.leave_budget(turn, now);
            }
            share
        }
    }

    /// # Safety
    ///
    /// As for [`Turns::stop`]; its share has a budget.
    #[cold]
    unsafe fn leave_budget(&mut self, turn: *mut Turn, now: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            let share = (*turn).share;
            if let Some(budget) = &mut (*share).budget {
                budget.settle(now.wrapping_sub((*turn).began), (*turn).granted);
                budget.stop();
            }
            if (*share).lies_dry {
                self.wet(share, now);
            }
        }
    }

    /// # Safety
    ///
    /// As for [`Turns::wake`].
    #[inline]
    unsafe fn queue(&mut self, share: *mut Share, turn: *mut Turn, now: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            (*turn).began = now;
            if (*share).waiting.is_empty() {
                self.ready.insert(share);
            }
            (*share).waiting.insert(turn);
        }
    }
}
