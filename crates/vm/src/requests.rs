//! What others ask of a vCPU while it runs.
//!
//! Protocol: a vCPU that enters the guest does `mode.store(IN_GUEST)`, **\[enter\]** `fence(SeqCst)`, loads the
//! requests, and goes in only if there is none. Who asks sets a bit, **\[ask\]** `fence(SeqCst)`, and loads the mode.
//! Store buffering: either the vCPU sees the request and stays outside, or the asker finds it in the guest, and, if it
//! needs to, sleeps on the mode until the vCPU has come out. To come out the vCPU swaps the mode; where that gives
//! `AWAITED`, which an asker who sleeps has put there, it wakes. A vCPU takes a request outside the guest alone, so an
//! asker whose request is taken waits no more, wherever the vCPU is by then. So when [`Requests::ask_reload`] has been
//! waited for, the vCPU has been outside since, and looks at what was asked before it is inside again.

use mayfly_platform::Platform;
use mayfly_platform::sync::{AtomicU32, CacheLine, Ordering, fence};

/// The vCPU is to come out of the guest and return to whoever runs it.
const EXIT: u32 = 1;
/// The vCPU is to load its root anew.
const RELOAD: u32 = 2;

const OUTSIDE: u32 = 0;
const IN_GUEST: u32 = 1;
/// In the guest, and somebody sleeps until it is not.
const AWAITED: u32 = 2;

/// The requests of one vCPU: a word that others set and the vCPU looks at before it enters the guest, and in it.
///
/// Whoever asks changes the word and kicks: where the guest is a program that looks at [`Requests::any`] between its
/// steps, changing the word is the kick; a vCPU that sleeps in [`Requests::wait`] is woken.
#[derive(Debug)]
pub struct Requests {
    line: CacheLine<Line>,
}

#[derive(Debug)]
struct Line {
    word: AtomicU32,
    /// Whether the vCPU is in the guest. Written by the vCPU, and by who waits for it.
    mode: AtomicU32,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let line = Line { word: AtomicU32::new(0), mode: AtomicU32::new(OUTSIDE) };
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
    pub(crate) fn ask_exit(&self, platform: &dyn Platform) {
        self.ask(EXIT, platform);
    }

    /// Asks the vCPU to load its root anew before it is in the guest again.
    pub(crate) fn ask_reload(&self, platform: &dyn Platform) {
        self.ask(RELOAD, platform);
        // [ask]
        fence(Ordering::SeqCst);
    }

    fn ask(&self, bit: u32, platform: &dyn Platform) {
        // Release, pairing with the acquire in `take`: the vCPU sees what the asker did before.
        self.line.word.fetch_or(bit, Ordering::Release);
        platform.wake(&self.line.word);
    }

    /// Waits until the vCPU has been outside the guest after [`Requests::ask_reload`].
    pub(crate) fn wait_outside(&self, platform: &dyn Platform) {
        let Line { word, mode } = &*self.line;
        while word.load(Ordering::Acquire) & RELOAD != 0 {
            let mark =
                mode.compare_exchange(IN_GUEST, AWAITED, Ordering::Acquire, Ordering::Acquire);
            if mark == Err(OUTSIDE) {
                return;
            }
            // Looked at again now that the mark is set: it may be on a stay in the guest that began with the request
            // taken, and then nothing says when that ends.
            if word.load(Ordering::Acquire) & RELOAD != 0 {
                platform.wait(mode, AWAITED);
            }
        }
    }

    /// Whether the vCPU was asked to return; asks no more.
    pub(crate) fn take_exit(&self) -> bool {
        self.take(EXIT)
    }

    /// Whether the vCPU was asked to load its root anew; asks no more.
    pub(crate) fn take_reload(&self) -> bool {
        self.take(RELOAD)
    }

    fn take(&self, bit: u32) -> bool {
        // Acquire, pairing with `ask`. Release, pairing with `wait_outside`: who finds the request taken comes after
        // all that the vCPU did in the guest before.
        self.line.word.load(Ordering::Relaxed) & bit != 0
            && self.line.word.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Goes into the guest, unless something is asked. Returns whether it did.
    pub(crate) fn enter_guest(&self, platform: &dyn Platform) -> bool {
        // Release, pairing with the acquire in `wait_outside`: who finds the vCPU in the guest finds what it took
        // before.
        self.line.mode.store(IN_GUEST, Ordering::Release);
        // [enter]
        fence(Ordering::SeqCst);
        let entered = !self.any();
        if !entered {
            self.leave_guest(platform);
        }
        entered
    }

    /// Comes out.
    pub(crate) fn leave_guest(&self, platform: &dyn Platform) {
        if self.line.mode.swap(OUTSIDE, Ordering::AcqRel) == AWAITED {
            platform.wake(&self.line.mode);
        }
    }
}
