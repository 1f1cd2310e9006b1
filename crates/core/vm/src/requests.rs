//! Requests to a vCPU that runs, and how the vCPU is brought to look at them.
//!
//! A vCPU has two words. Its *requests* are bits that others set and that it takes. Its *mode* says where it is:
//! outside, in the guest (on which CPU), or asleep until an invalidation ends. In the same line is its [`Hold`], the
//! root on which it is in the guest. The argument below covers all requests: kicks, new roots, a VM's end, and the
//! embedder's own. None of them needs another "in the guest" word, or another fence.
//!
//! - *A vCPU goes in*, or falls asleep: it stores the mode, executes **\[enter\]** `fence(SeqCst)`, loads the requests,
//!   and goes on only if there is none. Where it goes in, that fence is the one of
//!   [`Holder::enter`](mayfly_stage2::Holder).
//! - *An asker* sets a bit, executes **\[ask\]** `fence(SeqCst)`, and loads the mode. If the vCPU is in the guest, the
//!   platform [interrupts](Platform::interrupt) its CPU. If it is asleep, the asker changes the word on which the vCPU
//!   sleeps, and wakes it.
//!
//! \[enter\] and \[ask\] are store buffering: either the vCPU sees the request, and stays outside, or awake; or the
//! asker sees where the vCPU is. What remains is the way from there into the guest, or to sleep:
//!
//! - *Into the guest.* The interrupt may come before the CPU is in the guest, and be over by then. So
//!   [`Guest::enter`](crate::Guest::enter) masks interrupts, and looks at [`Requests::any`] a last time, by a plain
//!   load. If the interrupt came before the mask, its bit was set before it was sent, and a CPU that takes an interrupt
//!   sees what was written before: the look finds the bit. If the interrupt comes later, it is pending when the guest
//!   is entered, and brings the vCPU out. A guest that looks at [`Requests::any`] between its steps needs no interrupt.
//! - *To sleep.* The vCPU loads the word on which it is going to sleep after \[enter\], and then the requests. The
//!   asker sets its bit before it changes that word. Either the change comes after the load, and ends the sleep, or
//!   does not let it begin; or the load acquires the change, and the vCPU finds the bit.
//!
//! **To come out** the vCPU empties its hold, and swaps the mode. The old value may have two marks. If it has the mark
//! of a caller that sleeps until the vCPU is out, the vCPU wakes that caller ([`Requests::wait_outside`]). If it has
//! the reclaimer's mark, the vCPU tells the reclaimer ([`Requests::tell_when_out`]). A mark is set by compare-exchange,
//! and only while the vCPU is in the guest. So a caller that sets a mark is told. And a caller that finds the vCPU
//! outside has acquired the swap, and finds the hold as it was emptied.
//!
//! A vCPU takes a request only outside the guest. So an asker whose request is taken no longer waits, wherever the vCPU
//! is by then. When a caller has waited for [`Requests::ask_reload`], the vCPU has been outside since, and looks at its
//! requests before it is inside again. A vCPU that is asleep is outside.

use mayfly_platform::Platform;
use mayfly_platform::sync::{AtomicU32, CacheLine, Ordering, fence};
use mayfly_stage2::Hold;

/// The vCPU is to come out of the guest and return to its caller.
const EXIT: u32 = 1;
/// The vCPU is to load its root anew.
const RELOAD: u32 = 2;
/// Above this are the embedder's bits.
const CUSTOM_SHIFT: u32 = 16;

const OUTSIDE: u32 = 0;
const IN_GUEST: u32 = 1;
/// With [`IN_GUEST`]: a caller sleeps until it is not.
const AWAITED: u32 = 2;
/// With [`IN_GUEST`]: the reclaimer is to be told when it is not.
const TELLS: u32 = 4;
/// Outside, and asleep until some invalidation ends.
const ASLEEP: u32 = 4;
/// Above this is the CPU, with [`IN_GUEST`].
const CPU_SHIFT: u32 = 3;

/// The requests of one vCPU: a word that others set and the vCPU looks at before it enters the guest, and in it.
///
/// An asker changes the word, wakes a vCPU that sleeps in [`Requests::wait`], and has the platform interrupt one
/// that is in the guest.
#[derive(Debug)]
pub struct Requests {
    line: CacheLine<Line>,
}

#[derive(Debug)]
struct Line {
    word: AtomicU32,
    /// Where the vCPU is. Written by the vCPU, and by callers that wait for it.
    mode: AtomicU32,
    hold: Hold,
}

/// Where a vCPU is that something is asked of, as far as the asker has to do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// It looks by itself before it goes anywhere.
    Awake,
    /// In the guest.
    Cpu(u32),
    /// Asleep, until the word changes that tells of ends of invalidations.
    Asleep,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let (word, mode) = (AtomicU32::new(0), AtomicU32::new(OUTSIDE));
        let line = Line { word, mode, hold: Hold::new() };
        Self { line: CacheLine(line) }
    }

    /// Whether something is asked. The guest stops where it is when it is.
    #[inline]
    pub fn any(&self) -> bool {
        self.line.word.load(Ordering::Relaxed) != 0
    }

    /// Sleeps until something is asked.
    pub fn wait(&self, platform: &dyn Platform) {
        while self.line.word.load(Ordering::Acquire) == 0 {
            platform.wait(&self.line.word, 0);
        }
    }

    /// Asks the vCPU to leave the guest and return.
    #[must_use = "it has to be brought out from there"]
    pub(crate) fn ask_exit(&self, platform: &dyn Platform) -> Whereabouts {
        self.ask(EXIT, platform)
    }

    /// Asks the vCPU to load its root anew before it is in the guest again.
    #[must_use = "it has to be brought out from there"]
    pub(crate) fn ask_reload(&self, platform: &dyn Platform) -> Whereabouts {
        self.ask(RELOAD, platform)
    }

    /// Asks the vCPU to leave the guest and return, with what the embedder means by `bits`.
    #[must_use = "it has to be brought out from there"]
    pub(crate) fn ask_custom(&self, bits: u16, platform: &dyn Platform) -> Whereabouts {
        self.ask(u32::from(bits) << CUSTOM_SHIFT, platform)
    }

    fn ask(&self, bits: u32, platform: &dyn Platform) -> Whereabouts {
        let Line { word, mode, .. } = &*self.line;
        // Release, pairing with the acquire in `take`: the vCPU sees what the asker did before.
        word.fetch_or(bits, Ordering::Release);
        // [ask]
        fence(Ordering::SeqCst);
        platform.wake(word);
        match mode.load(Ordering::Relaxed) {
            mode if mode & IN_GUEST != 0 => Whereabouts::Cpu(mode >> CPU_SHIFT),
            ASLEEP => Whereabouts::Asleep,
            _ => Whereabouts::Awake,
        }
    }

    /// Waits until the vCPU has been outside the guest after [`Requests::ask_reload`].
    pub(crate) fn wait_outside(&self, platform: &dyn Platform) {
        let Line { word, mode, .. } = &*self.line;
        while word.load(Ordering::Acquire) & RELOAD != 0 {
            let here = mode.load(Ordering::Acquire);
            if here & IN_GUEST == 0 {
                return;
            }
            let marked = here | AWAITED;
            if mode.compare_exchange(here, marked, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            // Looked at again now that the mark is set: it may be on a stay in the guest that began with the request
            // taken, and then nothing says when that ends.
            if word.load(Ordering::Acquire) & RELOAD != 0 {
                platform.wait(mode, marked);
            }
        }
    }

    /// Whether the vCPU was asked to return; asks no more.
    pub(crate) fn take_exit(&self) -> bool {
        self.take(EXIT) != 0
    }

    /// Whether the vCPU was asked to load its root anew; asks no more.
    pub(crate) fn take_reload(&self) -> bool {
        self.take(RELOAD) != 0
    }

    /// What the embedder has asked, if anything; asks no more.
    pub(crate) fn take_custom(&self) -> Option<u16> {
        let bits = self.take(u32::from(u16::MAX) << CUSTOM_SHIFT) >> CUSTOM_SHIFT;
        u16::try_from(bits).ok().filter(|&bits| bits != 0)
    }

    fn take(&self, bits: u32) -> u32 {
        if self.line.word.load(Ordering::Relaxed) & bits == 0 {
            return 0;
        }
        // Acquire, pairing with `ask`. Release, pairing with `wait_outside`: a caller that finds the request taken
        // comes after all that the vCPU did in the guest before.
        self.line.word.fetch_and(!bits, Ordering::AcqRel) & bits
    }

    /// The root that the vCPU is in the guest on.
    pub(crate) fn hold(&self) -> &Hold {
        &self.line.hold
    }

    /// Goes into the guest on `cpu`, on the root that `hold` gives, which executes [enter]; unless that gives none, or
    /// something is asked. Returns the root if it did; otherwise it has come out again.
    #[inline]
    pub(crate) fn enter_guest<R>(
        &self,
        cpu: u32,
        platform: &dyn Platform,
        hold: impl FnOnce() -> Option<R>,
    ) -> Result<R, Left> {
        // Release, pairing with the acquire in `wait_outside`: a caller that finds the vCPU in the guest finds what it
        // took before.
        self.line.mode.store(IN_GUEST | cpu << CPU_SHIFT, Ordering::Release);
        match hold() {
            Some(root) if !self.any() => Ok(root),
            outdated => {
                drop(outdated);
                Err(self.leave_guest(platform))
            }
        }
    }

    /// Comes out, after the root that [`Requests::enter_guest`] gave was dropped.
    #[inline]
    pub(crate) fn leave_guest(&self, platform: &dyn Platform) -> Left {
        let marks = self.line.mode.swap(OUTSIDE, Ordering::AcqRel);
        if marks & AWAITED != 0 {
            platform.wake(&self.line.mode);
        }
        Left { tells: marks & TELLS != 0 }
    }

    /// Has [`Requests::leave_guest`] say that the reclaimer is to be told, when the vCPU next comes out. Returns
    /// whether it is in the guest.
    pub(crate) fn tell_when_out(&self) -> bool {
        let is_in = |mode| (mode & IN_GUEST != 0).then_some(mode | TELLS);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        self.line.mode.fetch_update(set, fetch, is_in).is_ok()
    }

    /// Runs `sleep`, which loads the word that it is going to sleep on, and then sleeps until that changes, unless
    /// something is asked. Returns whether nothing is.
    pub(crate) fn asleep(&self, sleep: impl FnOnce()) -> bool {
        // A caller that finds the vCPU asleep finds what it took before.
        self.line.mode.store(ASLEEP, Ordering::Release);
        // [enter]
        fence(Ordering::SeqCst);
        if !self.any() {
            sleep();
        }
        // No caller waits for a vCPU that is asleep.
        self.line.mode.store(OUTSIDE, Ordering::Relaxed);
        !self.any()
    }
}

/// The vCPU has come out.
#[derive(Clone, Copy)]
#[must_use = "the reclaimer may have to be told"]
pub(crate) struct Left {
    /// The reclaimer is to be told.
    pub(crate) tells: bool,
}
