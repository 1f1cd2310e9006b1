//! The notifier sequence: what keeps a fault from mapping what the host has just taken away.
//!
//! A fault asks the host which frame is behind a guest frame, and then installs it; in between, the host may give the
//! frame to somebody else. Linux's KVM holds its lock over the check and the installation. Here there is no lock:
//!
//! - A *fault* samples the sequence, asks the host, then: freezes the entry, **\[install\]** `fence(SeqCst)`, and asks
//!   [`Sequence::permits`]. Only if it may does it thaw the entry with the new leaf; otherwise it puts back what was
//!   there, and starts again.
//! - An *invalidation* announces itself (range and count), **\[announce\]** `fence(SeqCst)`, then loads the entries. A
//!   frozen one it waits for. At its end it raises the sequence and takes the announcement back.
//!
//! Store buffering: either [install] comes before [announce], and the invalidation finds the entry frozen, or what came
//! of it, and zaps that; or [announce] comes before [install], and the fault finds the announcement, or, if the
//! invalidation is over already, a sequence other than the one it sampled. A fault that samples after the end asks the
//! host after the end. So no leaf outlives the invalidation that should have zapped it, and no vCPU ever uses one that
//! is to be withdrawn.
//!
//! A memslot change raises the sequence at once, after it has published the new slots: a fault that found the old ones
//! is then refused, and one that samples later finds the new ones. Where something is to be zapped for it, it announces
//! that before: who acquires the new slots, which may lie where the old ones did, finds the announcement as well, and
//! installs nothing there until it ends.
//!
//! The same fences order this against roots: a root that a range operation does not find was published after
//! [announce], so whatever is installed in it is installed by a fault whose [install] comes later still.
//!
//! An invalidation that gives a right back, in place, does as a fault does: it freezes the entry, [install], and asks
//! whether there is another invalidation than its own, which may not have taken away yet what it is about to give.
//!
//! A fault's check reads one cache line, which only invalidations write.

use core::ops::Range;

use mayfly_platform::address::Gfn;
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::Handle;
use mayfly_platform::sync::{AtomicU32, AtomicU64, CacheLine, Ordering, fence};
use mayfly_platform::{Mmu, Platform};

/// The sequence as a fault found it before it asked the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

pub(crate) struct Sequence {
    line: CacheLine<Line>,
    ended: InvalidationWaiters,
    waiters: AtomicU32,
    writer: Lock<()>,
}

struct Line {
    sequence: AtomicU64,
    /// Invalidations that have begun and not ended.
    active: AtomicU32,
    /// A range that contains those of all of them.
    start: AtomicU64,
    end: AtomicU64,
}

impl Sequence {
    pub(crate) fn new(ended: Handle<AtomicU32>) -> Self {
        Self {
            line: CacheLine(Line {
                sequence: AtomicU64::new(0),
                active: AtomicU32::new(0),
                start: AtomicU64::new(0),
                end: AtomicU64::new(0),
            }),
            ended: InvalidationWaiters(ended),
            waiters: AtomicU32::new(0),
            writer: Lock::new(()),
        }
    }

    /// The sequence now.
    #[inline]
    pub(crate) fn sample(&self) -> Seen {
        Seen(self.line.sequence.load(Ordering::Acquire))
    }

    /// Whether what the host said after `seen` was sampled may be mapped at `gfns`.
    ///
    /// The sequence is loaded last. A range that belongs to a later invalidation than the count was stored after the
    /// earlier one's end, which raised the sequence: then this finds it raised.
    #[inline]
    pub(crate) fn permits(&self, gfns: &Range<Gfn>, seen: Seen) -> bool {
        !self.is_active_in(gfns) && self.sample() == seen
    }

    /// Whether an invalidation of some of `gfns` is under way.
    #[inline]
    pub(crate) fn is_active_in(&self, gfns: &Range<Gfn>) -> bool {
        self.line.active.load(Ordering::Acquire) != 0
            && self.line.start.load(Ordering::Acquire) < gfns.end.get()
            && self.line.end.load(Ordering::Acquire) > gfns.start.get()
    }

    /// Whether more than one invalidation is under way, of whatever frames.
    pub(crate) fn is_shared(&self) -> bool {
        self.line.active.load(Ordering::Acquire) > 1
    }

    /// Announces an invalidation of the frames that `gfns` gives, under the writers' lock.
    pub(crate) fn begin(&self, gfns: impl FnOnce() -> Range<Gfn>, mmu: &dyn Mmu) {
        {
            let _writer = self.writer.lock(as_platform(mmu));
            self.announce(&gfns());
        }
        // [announce]
        fence(Ordering::SeqCst);
    }

    /// Ends an invalidation that was begun.
    pub(crate) fn end(&self, mmu: &dyn Mmu) {
        {
            let _writer = self.writer.lock(as_platform(mmu));
            self.raise();
            let active = &self.line.active;
            active.store(active.load(Ordering::Relaxed) - 1, Ordering::Release);
        }
        self.ended.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) != 0 {
            mmu.wake(&self.ended.0);
        }
    }

    /// Runs `publish` while no invalidation is under way, and refuses every fault that has sampled the sequence before.
    /// Before that, announces an invalidation of `gfns`, if there are any.
    pub(crate) fn exclude<T>(
        &self,
        gfns: Option<&Range<Gfn>>,
        publish: impl FnOnce() -> T,
        mmu: &dyn Mmu,
    ) -> T {
        loop {
            let writer = self.writer.lock(as_platform(mmu));
            if self.line.active.load(Ordering::Relaxed) == 0 {
                gfns.inspect(|gfns| self.announce(gfns));
                let published = publish();
                self.raise();
                drop(writer);
                // [announce]
                fence(Ordering::SeqCst);
                return published;
            }
            drop(writer);
            self.wait_end(|| self.line.active.load(Ordering::Acquire) != 0, mmu);
        }
    }

    /// Under the lock.
    fn announce(&self, gfns: &Range<Gfn>) {
        let Line { active, start, end, .. } = &*self.line;
        let count = active.load(Ordering::Relaxed);
        let (mut first, mut last) = (gfns.start.get(), gfns.end.get());
        if count > 0 {
            first = first.min(start.load(Ordering::Relaxed));
            last = last.max(end.load(Ordering::Relaxed));
        }
        start.store(first, Ordering::Release);
        end.store(last, Ordering::Release);
        active.store(count + 1, Ordering::Release);
    }

    /// Under the lock.
    fn raise(&self) {
        let sequence = &self.line.sequence;
        sequence.store(sequence.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns when no invalidation of `gfns` is under way, or some has just ended, or somebody has those who wait look
    /// again, or if `called_off` says so, which is asked once.
    pub(crate) fn wait(&self, gfns: &Range<Gfn>, called_off: impl FnOnce() -> bool, mmu: &dyn Mmu) {
        if self.is_active_in(gfns) {
            self.wait_end(|| self.is_active_in(gfns) && !called_off(), mmu);
        }
    }

    pub(crate) fn waiters(&self) -> InvalidationWaiters {
        self.ended.clone()
    }

    /// Sleeps until some invalidation ends, if there is one `to_wait_for`. Who ends one changes `ended`, and then looks
    /// for waiters; who waits says so, and then looks whether there is something to wait for.
    fn wait_end(&self, to_wait_for: impl FnOnce() -> bool, mmu: &dyn Mmu) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let ended = self.ended.0.load(Ordering::SeqCst);
        if to_wait_for() {
            while self.ended.0.load(Ordering::Acquire) == ended {
                mmu.wait(&self.ended.0, ended);
            }
        }
        self.waiters.fetch_sub(1, Ordering::Release);
    }
}

/// Those who wait for an invalidation of one VM to end. Lock-free, and may outlive the VM.
#[derive(Clone, Debug)]
pub struct InvalidationWaiters(
    /// Changes when an invalidation ends, or who waits is to look again.
    Handle<AtomicU32>,
);

impl InvalidationWaiters {
    /// Has them look whether there is still something to wait for: what came before this is seen by who then looks.
    ///
    /// For interrupt handlers too: calls [`Platform::wake`] and nothing else.
    pub fn look_again(&self, platform: &dyn Platform) {
        // Release, pairing with the loads in `wait_end`.
        self.0.fetch_add(1, Ordering::Release);
        platform.wake(&self.0);
    }
}

fn as_platform(mmu: &dyn Mmu) -> &dyn Platform {
    mmu
}
