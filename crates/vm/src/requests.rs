//! What others ask of a vCPU while it runs.

use mayfly_platform::Platform;
use mayfly_platform::sync::{AtomicU32, CacheLine, Ordering};

/// The vCPU is to come out of the guest and return to whoever runs it.
const EXIT: u32 = 1;

/// The requests of one vCPU: a word that others set and the vCPU looks at before it enters the guest, and in it.
///
/// Whoever asks changes the word and kicks: where the guest is a program that looks at [`Requests::any`] between its
/// steps, changing the word is the kick; a vCPU that sleeps in [`Requests::wait`] is woken.
#[derive(Debug)]
pub struct Requests {
    word: CacheLine<AtomicU32>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self { word: CacheLine(AtomicU32::new(0)) }
    }

    /// Whether something is asked. The guest stops where it is when it is.
    #[inline]
    pub fn any(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Sleeps until something is asked.
    pub fn wait(&self, platform: &dyn Platform) {
        while self.word.load(Ordering::Acquire) == 0 {
            platform.wait(&self.word, 0);
        }
    }

    /// Asks the vCPU to leave the guest and return.
    pub(crate) fn ask_exit(&self, platform: &dyn Platform) {
        // Release, pairing with the acquire in `take_exit`: the vCPU sees what the asker did before.
        self.word.fetch_or(EXIT, Ordering::Release);
        platform.wake(&self.word);
    }

    /// Whether the vCPU was asked to return; asks no more.
    pub(crate) fn take_exit(&self) -> bool {
        self.any() && self.word.fetch_and(!EXIT, Ordering::Acquire) & EXIT != 0
    }
}
