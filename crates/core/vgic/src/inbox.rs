//! What a vCPU has to look at when it next enters its guest: a bit for each interrupt, which any party sets, and a
//! notice that there is something new.
//!
//! A bit is a hint. A party that makes an interrupt deliverable changes the interrupt's word first, sets the bit next,
//! and the notice last. The vCPU takes the notice first, the bits next, and then looks at the words. The notice is read
//! and written by read-modify-writes alone, each an acquire and a release, so they have one order. A notice that is
//! given before the vCPU takes it makes the bit visible to that vCPU (and through the bit's own release, the word). If
//! a notice is given after that, the giver finds it taken, and kicks.
//!
//! WFI rests on the same order. The vCPU says that it sleeps, takes the notice, and looks at the bits. The vCPU sees a
//! giver that came before that. A giver that came after it sees that the vCPU sleeps, and its kick wakes the vCPU. A
//! giver that finds the notice given leaves the kick to the giver of that notice, which came after the vCPU last took
//! it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU32, Ordering};

/// The interrupts that a vCPU has to look at.
#[derive(Debug)]
pub(crate) struct Inbox {
    notice: AtomicU32,
    words: Box<[AtomicU32]>,
}

impl Inbox {
    /// One for `words` times 32 interrupts, all of which are to be looked at.
    pub(crate) fn try_full(words: usize) -> Result<Self, OutOfMemory> {
        let mut bits = Vec::new();
        bits.try_reserve_exact(words)?;
        bits.extend((0..words).map(|_| AtomicU32::new(u32::MAX)));
        Ok(Self { notice: AtomicU32::new(0), words: bits.into_boxed_slice() })
    }

    /// To be looked at by the vCPU that this belongs to, when it next enters.
    pub(crate) fn put(&self, intid: u32) {
        if let Some(word) = self.words.get(intid as usize / 32) {
            word.fetch_or(1 << (intid % 32), Ordering::Release);
        }
    }

    /// The interrupts of `word`, 32 each, are to be looked at as `bits` says, and no notice was given. For a vCPU that
    /// runs on no thread: nobody else uses it.
    pub(crate) fn begin(&mut self, word: usize, bits: u32) {
        self.notice.store(0, Ordering::Relaxed);
        if let Some(word) = self.words.get(word) {
            word.store(bits, Ordering::Relaxed);
        }
    }

    /// Everything is to be looked at. A read-modify-write too: a store would hide from the vCPU that takes the bits who had
    /// put them there before, and so what those had written.
    pub(crate) fn put_all(&self) {
        for word in &*self.words {
            word.fetch_or(u32::MAX, Ordering::Release);
        }
    }

    /// Gives notice; whether the vCPU is to be kicked for it.
    #[must_use]
    pub(crate) fn notify(&self) -> bool {
        self.notice.swap(1, Ordering::AcqRel) == 0
    }

    /// Whether notice was given, and not taken yet.
    pub(crate) fn has_notice(&self) -> bool {
        self.notice.load(Ordering::Relaxed) != 0
    }

    /// Takes the notice: a party that comes after this kicks.
    pub(crate) fn take_notice(&self) {
        self.notice.swap(0, Ordering::AcqRel);
    }

    /// Whether nothing is to be looked at.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Calls `look` with each interrupt that is to be looked at, and takes it out.
    pub(crate) fn take(&self, mut look: impl FnMut(u32)) {
        for (index, word) in self.words.iter().enumerate() {
            if word.load(Ordering::Relaxed) != 0 {
                each(index, word.swap(0, Ordering::AcqRel), &mut look);
            }
        }
    }

    /// Calls `look` with each interrupt that is to be looked at, and leaves it in.
    pub(crate) fn peek(&self, mut look: impl FnMut(u32)) {
        for (index, word) in self.words.iter().enumerate() {
            each(index, word.load(Ordering::Acquire), &mut look);
        }
    }
}

fn each(index: usize, mut bits: u32, look: &mut impl FnMut(u32)) {
    while bits != 0 {
        look(index as u32 * 32 + bits.trailing_zeros());
        bits &= bits - 1;
    }
}
