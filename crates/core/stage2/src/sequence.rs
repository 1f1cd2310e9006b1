//! The notifier sequence: it keeps a fault from mapping memory that the host has just taken away.
//!
//! A fault asks the host which frame is behind a guest frame, and then installs that frame. In between, the host may
//! give the frame away. Linux's KVM holds its lock over the check and the installation. Here there is no lock.
//!
//! Invalidations are *numbered* as they end. Guest memory is cut into *regions* of 2 MiB, for which 64 *words* stand in
//! turn. A word has the number of the last invalidation that took something of its regions away, and says whether one
//! is under way. Which frames the invalidations under way take away is *announced* beside the words, exactly
//! ([`ranges`]).
//!
//! - A *fault* samples the last number, asks the host, and then freezes the entry, executes **\[install\]**
//!   `fence(SeqCst)`, and asks [`Sequence::permits`]. That loads the word of the fault's region, or the words of all
//!   regions of a block. The words permit the fault in two cases: none has a number that came after the sample, and
//!   none has an invalidation under way; or none has a number that came after the sample, and no invalidation under way
//!   has announced any of the fault's own frames. Only then does the fault thaw the entry with the new leaf. Otherwise
//!   it restores the old entry, and starts again.
//! - An *invalidation* announces its ranges, marks their words, executes **\[announce\]** `fence(SeqCst)`, and then
//!   loads the entries. It waits for a frozen one. At its end it takes the next number, stores it as the last, then
//!   stores it to each word that it has marked, and then takes the announcement back.
//!
//! This is store buffering. Either \[install\] comes before \[announce\]; then the invalidation finds the entry frozen,
//! or finds what came of it, and zaps that. Or \[announce\] comes before \[install\]; then the fault, whose word is the
//! word of the frames that both concern, finds the word marked and the range announced, or something newer. Newer in
//! the word is a number after the sample, unless the sample was taken after the end; and then the host was asked after
//! the end too. Newer in the place of the range was stored after the end, and acquired; so the word, which the fault
//! loads again after the ranges, has its number. So no leaf outlives the invalidation that should have zapped it, and
//! no vCPU ever uses a leaf that is to be withdrawn. The argument needs only that word and that range. So what an
//! invalidation does to other words concerns only the frames for which they stand, and a block asks all of its words.
//!
//! Several invalidations of one word: the word stays marked until the last of them ends, and has the number of the one
//! that ended last; each has a range of its own. The words, the ranges and the count are written under one lock, which
//! no fault takes. A number has 63 bits, and so never repeats.
//!
//! A memslot change takes the next number at once, for the words of its slot, after it has published the new slots. A
//! fault that found the old slots there is then refused, and a fault that samples later finds the new ones. Where the
//! change requires a zap, it announces that before it publishes. A fault that acquires the new slots, which may lie
//! where the old ones did, finds the announcement as well, and installs nothing there until the invalidation ends.
//!
//! The same fences order this against roots: a root that a range operation does not find was published after
//! \[announce\], so whatever is installed in it is installed by a fault whose \[install\] comes later still.
//!
//! An invalidation that gives a right back in place does as a fault does: it freezes the entry, executes \[install\],
//! and asks whether another invalidation of that page is under way, which may not yet have taken away the right that
//! this one is about to give.
//!
//! # Faults that are refused without need
//!
//! An invalidation under way elsewhere refuses no fault, however long it takes, as long as there are no more of them
//! than places for ranges ([`ranges::PLACES`]). Invalidations beyond these share one place, which stands for everything
//! in between.
//!
//! An invalidation that *ends* elsewhere refuses a fault if it ends between the fault's sample and its check, and if it
//! has a region in common with the fault, or a region at a multiple of 64 regions, 128 MiB, from it. Of invalidations
//! that take 2 MiB or less and lie anywhere, one in 32 does (they may have two regions); of those that take 128 MiB or
//! more, each does. The fault is then made again without waiting.
//!
//! Why not exact ranges of those that have ended? They would have to be kept for as long as the slowest fault takes. So
//! they would be without bound; or they would be given up when there are many, and then refuse the slow fault for ever.
//! Words refuse a fault only for an invalidation that shares a word with it, however many end meanwhile.
//!
//! A fault reads the line of the last number, and the line of a word, which only invalidations write; and the lines of
//! the ranges where its word is marked.

mod announcement;
mod marks;
mod ranges;
#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests;
mod words;

use core::ops::Range;

use mayfly_platform::address::Gfn;
use mayfly_platform::memory::Handle;
use mayfly_platform::sync::{AtomicU32, AtomicU64, CacheLine, Ordering, fence};
use mayfly_platform::{Mmu, Platform};

pub(crate) use announcement::Announced;
pub use announcement::Announcement;

use marks::{Counts, Marks};
use ranges::{Ranges, Taken};
use words::{REGION, WORDS, Words};

/// In a word, above the number: an invalidation of some of its regions is under way.
const MARK: u64 = 1 << 63;

/// The sequence as a fault found it before it asked the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(
    /// The number of the last invalidation that had ended.
    u64,
);

/// Sequences that were made. A number is given once: by its address, what was announced in a sequence that is gone
/// would pass for that of another which lies there now.
static SEQUENCES: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

pub(crate) struct Sequence {
    /// Which of all it is.
    own: u64,
    /// The number of the last invalidation, or change of memslots, that has ended.
    last: CacheLine<AtomicU64>,
    words: CacheLine<[AtomicU64; WORDS]>,
    ranges: CacheLine<Ranges>,
    /// Invalidations that have begun and not ended: 64 bits, which also forgotten ones do not overflow.
    active: AtomicU64,
    ended: InvalidationWaiters,
    waiters: AtomicU32,
    /// Held by a caller that writes any of the above but waiters.
    marks: Marks,
}

impl Sequence {
    pub(crate) fn new(ended: Handle<AtomicU32>) -> Self {
        Self {
            own: SEQUENCES.fetch_add(1, core::sync::atomic::Ordering::Relaxed),
            last: CacheLine(AtomicU64::new(0)),
            words: CacheLine(core::array::from_fn(|_| AtomicU64::new(0))),
            ranges: CacheLine(Ranges::new()),
            active: AtomicU64::new(0),
            ended: InvalidationWaiters(ended),
            waiters: AtomicU32::new(0),
            marks: Marks::new(),
        }
    }

    /// The sequence now, for whatever frames.
    #[inline]
    pub(crate) fn sample(&self) -> Seen {
        Seen(self.last.load(Ordering::Acquire))
    }

    /// Whether what the host said after `seen` was sampled may be mapped at `gfns`, of which there are some.
    #[expect(clippy::inline_always, reason = "calls were a third of what a fault comes to")]
    #[inline(always)]
    pub(crate) fn permits(&self, gfns: &Range<Gfn>, seen: Seen) -> bool {
        // One look for both: a word that is marked is greater than every number.
        self.words_of(gfns).all(|word| word <= seen.0) || self.permits_beside(gfns, seen)
    }

    /// As [`Sequence::permits`], where some of the words are marked.
    ///
    /// The words are loaded last. A range of a later invalidation than the one that was found was stored after that
    /// one's end: then its words are found to have its number.
    #[cold]
    fn permits_beside(&self, gfns: &Range<Gfn>, seen: Seen) -> bool {
        self.ranges.count(gfns) == 0 && self.words_of(gfns).all(|word| word & !MARK <= seen.0)
    }

    /// Whether an invalidation of some of `gfns`, of which there are some, is under way.
    #[inline]
    pub(crate) fn is_active_in(&self, gfns: &Range<Gfn>) -> bool {
        self.words_of(gfns).any(|word| word & MARK != 0) && self.ranges.count(gfns) > 0
    }

    /// Whether `announced`, which has not ended, is of this VM and of all of `gfns`.
    pub(crate) fn is_announced(&self, announced: &Announced, gfns: &Range<Gfn>) -> bool {
        // A shared place reaches further than what was announced, but faults there are refused only where a word is marked.
        announced.sequence == self.own
            && announced.words.have(gfns)
            && self.ranges.have(&announced.ranges, gfns)
    }

    /// Whether more than one invalidation of `gfns` is under way.
    pub(crate) fn is_shared(&self, gfns: &Range<Gfn>) -> bool {
        self.ranges.count(gfns) > 1
    }

    /// The words of the regions that `gfns` lie in, as they are found one after the other.
    #[inline]
    fn words_of(&self, gfns: &Range<Gfn>) -> impl Iterator<Item = u64> {
        debug_assert!(gfns.start < gfns.end, "there are no frames");
        let first = gfns.start.get() / REGION;
        let count = (gfns.end.get().saturating_sub(1) / REGION - first).min(WORDS as u64 - 1);
        let word = |region| &self.words[region as usize % WORDS];
        (first..=first + count).map(move |region| word(region).load(Ordering::Acquire))
    }

    /// Announces an invalidation of the ranges that `places` gives, under the writers' lock.
    pub(crate) fn begin(
        &self,
        places: impl FnOnce(&mut dyn FnMut(Range<Gfn>)),
        mmu: &dyn Mmu,
    ) -> Announced {
        let announced = {
            let mut marks = self.marks.lock(mmu);
            self.announce(&mut marks, places)
        };
        // [announce]
        fence(Ordering::SeqCst);
        announced
    }

    /// Whether `announced` was announced here.
    pub(crate) fn is_own(&self, announced: &Announced) -> bool {
        announced.sequence == self.own
    }

    /// Ends an invalidation that was begun here.
    pub(crate) fn end(&self, announced: Announced, mmu: &dyn Mmu) {
        debug_assert!(self.is_own(&announced), "the invalidation is another VM's");
        {
            let mut marks = self.marks.lock(mmu);
            self.number(&mut marks, announced.words, 1);
            self.ranges.give_back(announced.ranges);
            self.active.store(self.active.load(Ordering::Relaxed) - 1, Ordering::Release);
        }
        self.ended.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) != 0 {
            mmu.wake(&self.ended.0);
        }
    }

    /// Runs `publish` while no invalidation is under way, and refuses every fault in `gfns` that has sampled the
    /// sequence before.
    pub(crate) fn exclude<T>(
        &self,
        gfns: &Range<Gfn>,
        publish: impl FnOnce() -> T,
        mmu: &dyn Mmu,
    ) -> T {
        self.alone(|marks| self.publish(marks, gfns, publish), mmu)
    }

    /// As [`Sequence::exclude`]; before that, announces an invalidation of `gfns`, which ends where `publish` panics.
    pub(crate) fn exclude_and_begin<T>(
        &self,
        gfns: &Range<Gfn>,
        publish: impl FnOnce() -> T,
        mmu: &dyn Mmu,
    ) -> (T, Announced) {
        let mut begun = Begun { sequence: self, announced: None, mmu };
        let announce = |marks: &mut Counts| {
            let announced = self.announce(marks, |place| place(gfns.clone()));
            begun.announced = Some(announced);
            (self.publish(marks, gfns, publish), announced)
        };
        let done = self.alone(announce, mmu);
        begun.announced = None;
        done
    }

    /// Refuses every fault in `gfns` that has sampled the sequence before.
    pub(crate) fn refuse(&self, gfns: &Range<Gfn>, mmu: &dyn Mmu) {
        self.publish(&mut self.marks.lock(mmu), gfns, || ());
        // [announce]
        fence(Ordering::SeqCst);
    }

    /// Runs `work`, under the lock, when no invalidation is under way.
    fn alone<T>(&self, work: impl FnOnce(&mut Counts) -> T, mmu: &dyn Mmu) -> T {
        loop {
            let mut marks = self.marks.lock(mmu);
            if self.active.load(Ordering::Relaxed) == 0 {
                let done = work(&mut marks);
                drop(marks);
                // [announce]
                fence(Ordering::SeqCst);
                return done;
            }
            drop(marks);
            self.wait_while(|| self.active.load(Ordering::Acquire) != 0, mmu);
        }
    }

    /// Under the lock.
    fn announce(
        &self,
        marks: &mut Counts,
        places: impl FnOnce(&mut dyn FnMut(Range<Gfn>)),
    ) -> Announced {
        let mut words = Words::NONE;
        let mut taking = Taking { ranges: &self.ranges, taken: Taken::NONE };
        places(&mut |gfns| {
            if gfns.start < gfns.end {
                words.add(&gfns);
                self.ranges.take(&gfns, &mut taking.taken);
            }
        });
        let ranges = core::mem::replace(&mut taking.taken, Taken::NONE);
        words.each(|index| {
            marks[index] += 1;
            let word = &self.words[index];
            word.store(word.load(Ordering::Relaxed) | MARK, Ordering::Release);
        });
        self.active.store(self.active.load(Ordering::Relaxed) + 1, Ordering::Release);
        Announced { words, ranges, sequence: self.own }
    }

    /// Under the lock.
    fn publish<T>(&self, marks: &mut Counts, gfns: &Range<Gfn>, publish: impl FnOnce() -> T) -> T {
        let published = publish();
        let mut words = Words::NONE;
        words.add(gfns);
        self.number(marks, words, 0);
        published
    }

    /// Stores the next number in `words`, of whose regions `ended` invalidations have ended, under the lock.
    #[inline]
    fn number(&self, marks: &mut Counts, words: Words, ended: u64) {
        let number = self.last.load(Ordering::Relaxed) + 1;
        // A fault that samples this has acquired what was published, or what the host did before the end.
        self.last.store(number, Ordering::Release);
        // After that, so that a fault which is refused by it samples no older one when it is made again.
        words.each(|word| {
            marks[word] -= ended;
            let mark = if marks[word] > 0 { MARK } else { 0 };
            self.words[word].store(number | mark, Ordering::Release);
        });
    }

    /// Returns when no invalidation of `gfns` is under way, or if `called_off` says so, which is asked again when
    /// a caller has the waiters look again.
    pub(crate) fn wait(
        &self,
        gfns: &Range<Gfn>,
        mut called_off: impl FnMut() -> bool,
        mmu: &dyn Mmu,
    ) {
        if gfns.start < gfns.end && self.is_active_in(gfns) {
            self.wait_while(|| self.is_active_in(gfns) && !called_off(), mmu);
        }
    }

    pub(crate) fn waiters(&self) -> InvalidationWaiters {
        self.ended.clone()
    }

    /// Sleeps as long as there is something `to_wait_for`. The caller that ends an invalidation changes `ended`, and
    /// then looks for waiters. A waiter says that it waits, loads `ended`, and then looks whether there is something to
    /// wait for, each time that `ended` has changed.
    fn wait_while(&self, mut to_wait_for: impl FnMut() -> bool, mmu: &dyn Mmu) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        loop {
            let ended = self.ended.0.load(Ordering::SeqCst);
            if !to_wait_for() {
                break;
            }
            while self.ended.0.load(Ordering::Acquire) == ended {
                mmu.wait(&self.ended.0, ended);
            }
        }
        self.waiters.fetch_sub(1, Ordering::Release);
    }
}

/// The waiters for an invalidation of one VM to end. Lock-free, and may outlive the VM.
#[derive(Clone, Debug)]
pub struct InvalidationWaiters(
    /// Changes when an invalidation ends, or waiters are to look again.
    Handle<AtomicU32>,
);

impl InvalidationWaiters {
    /// Has them look whether there is still something to wait for: a waiter that then looks sees what came before this.
    ///
    /// For interrupt handlers too: calls [`Platform::wake`] and nothing else.
    pub fn look_again(&self, platform: &dyn Platform) {
        // Release, pairing with the loads in `wait_while`.
        self.0.fetch_add(1, Ordering::Release);
        platform.wake(&self.0);
    }
}

/// An invalidation that ends when this is dropped, outside of the lock.
struct Begun<'a> {
    sequence: &'a Sequence,
    announced: Option<Announced>,
    mmu: &'a dyn Mmu,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(announced) = self.announced.take() {
            self.sequence.end(announced, self.mmu);
        }
    }
}

/// Places that are given back when this is dropped, under the lock.
struct Taking<'a> {
    ranges: &'a Ranges,
    taken: Taken,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.ranges.give_back(self.taken);
    }
}
