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
//!
//! LPIs may be many, and a vCPU that enters looks whether any bit is set. So their bits are apart, and the last word that
//! it looks at says which words of theirs to look at. And those that have no list register yet stay in: the vCPU takes out
//! an LPI that is nothing to it, and looks at its word once more after that. A giver changes the word first and sets the
//! bit next. So a bit that is set after it was taken out stays, and of one that was set before, the vCPU sees the word. The
//! bit of a word that has no LPI any more is taken out in the same way, and that word looked at once more: the giver sets
//! the LPI's own bit first.

use alloc::boxed::Box;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU32, AtomicU64, Ordering};

use crate::collect::{try_fill, word};
use crate::state::FIRST_LPI;

/// The interrupts of a word.
const WORD: usize = u64::BITS as usize;

/// The most LPIs whose words have a bit in one word.
pub(crate) const MOST_LPIS: usize = WORD * WORD;

/// The interrupts that a vCPU has to look at.
#[derive(Debug)]
pub(crate) struct Inbox {
    notice: AtomicU32,
    /// A bit an interrupt below the LPIs; then, where there are LPIs, a word with a bit for each word of theirs.
    words: Box<[AtomicU64]>,
    /// A bit an LPI.
    lpis: Box<[AtomicU64]>,
}

impl Inbox {
    /// One for so many interrupts below the LPIs, which are all to be looked at, and so many LPIs.
    pub(crate) fn try_full(interrupts: usize, lpis: usize) -> Result<Self, OutOfMemory> {
        let words = interrupts.div_ceil(WORD);
        Ok(Self {
            notice: AtomicU32::new(0),
            words: try_fill(words + usize::from(lpis != 0), |at| {
                AtomicU64::new(if at < words { u64::MAX } else { 0 })
            })?,
            lpis: try_fill(lpis.div_ceil(WORD), |_| AtomicU64::new(0))?,
        })
    }

    /// One of which the same is to be looked at, and in which no notice was given.
    pub(crate) fn try_copy(&self) -> Result<Self, OutOfMemory> {
        Ok(Self {
            notice: AtomicU32::new(0),
            words: try_fill(self.words.len(), |at| word(&self.words[at]))?,
            lpis: try_fill(self.lpis.len(), |at| word(&self.lpis[at]))?,
        })
    }

    /// Bytes of memory that it has allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.lpis)
    }

    /// To be looked at by the vCPU that this belongs to, when it next enters.
    pub(crate) fn put(&self, intid: u32) {
        let lpi = intid.checked_sub(FIRST_LPI).map(|lpi| lpi as usize);
        let at = match lpi {
            None => intid as usize,
            Some(lpi) => {
                let Some(word) = self.lpis.get(lpi / WORD) else { return };
                word.fetch_or(1 << (lpi % WORD), Ordering::Release);
                (self.words.len() - 1) * WORD + lpi / WORD
            }
        };
        if let Some(word) = self.words.get(at / WORD) {
            word.fetch_or(1 << (at % WORD), Ordering::Release);
        }
    }

    /// The first 32 interrupts, which are the vCPU's own, are to be looked at as `bits` says, and no notice was given. For
    /// a vCPU that runs on no thread: nobody else uses it.
    pub(crate) fn begin_own(&mut self, bits: u32) {
        self.notice.store(0, Ordering::Relaxed);
        if let Some(word) = self.words.first() {
            let others = word.load(Ordering::Relaxed) & !u64::from(u32::MAX);
            word.store(others | u64::from(bits), Ordering::Relaxed);
        }
    }

    /// None but the first 32 is to be looked at, and no notice was given. For a vCPU that runs on no thread.
    pub(crate) fn begin_shared(&mut self) {
        self.notice.store(0, Ordering::Relaxed);
        if let Some(word) = self.words.first() {
            let own = word.load(Ordering::Relaxed) & u64::from(u32::MAX);
            word.store(own, Ordering::Relaxed);
        }
        for word in self.words.iter().skip(1).chain(&self.lpis) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Everything below the LPIs is to be looked at; of these, what is pending is in here anyway, and to look at many is
    /// long work. A read-modify-write too: a store would hide from the vCPU that takes the bits who had put them there
    /// before, and so what those had written.
    pub(crate) fn put_all(&self) {
        for word in self.below_lpis() {
            word.fetch_or(u64::MAX, Ordering::Release);
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

    /// The words of interrupts below the LPIs.
    fn below_lpis(&self) -> &[AtomicU64] {
        &self.words[..self.words.len() - usize::from(!self.lpis.is_empty())]
    }

    /// Calls `look` with each interrupt below the LPIs that is to be looked at, and takes it out.
    pub(crate) fn take(&self, mut look: impl FnMut(u32)) {
        for (index, word) in self.below_lpis().iter().enumerate() {
            if word.load(Ordering::Relaxed) != 0 {
                each(index, word.swap(0, Ordering::AcqRel), &mut look);
            }
        }
    }

    /// Calls `look` with each interrupt below the LPIs that is to be looked at, and leaves it in.
    pub(crate) fn peek(&self, mut look: impl FnMut(u32)) {
        for (index, word) in self.below_lpis().iter().enumerate() {
            each(index, word.load(Ordering::Acquire), &mut look);
        }
    }

    /// Calls `is_due` with each LPI that is to be looked at, and takes it out if it is not due.
    #[inline]
    pub(crate) fn look_at_lpis(&self, is_due: impl FnMut(u32) -> bool) {
        if let Some(summary) = self.words.get(self.below_lpis().len())
            && summary.load(Ordering::Relaxed) != 0
        {
            self.look_at_lpis_of(summary, is_due);
        }
    }

    fn look_at_lpis_of(&self, summary: &AtomicU64, mut is_due: impl FnMut(u32) -> bool) {
        each(0, summary.load(Ordering::Acquire), &mut |place| {
            let Some(word) = self.lpis.get(place as usize) else { return };
            each(place as usize, word.load(Ordering::Acquire), &mut |lpi| {
                let bit = 1 << (lpi as usize % WORD);
                if !is_due(FIRST_LPI + lpi) {
                    word.fetch_and(!bit, Ordering::AcqRel);
                    if is_due(FIRST_LPI + lpi) {
                        word.fetch_or(bit, Ordering::Release);
                    }
                }
            });
            if word.load(Ordering::Relaxed) == 0 {
                summary.fetch_and(!(1 << place), Ordering::AcqRel);
                if word.load(Ordering::Relaxed) != 0 {
                    summary.fetch_or(1 << place, Ordering::Release);
                }
            }
        });
    }
}

fn each(index: usize, mut bits: u64, look: &mut impl FnMut(u32)) {
    while bits != 0 {
        look(index as u32 * u64::BITS + bits.trailing_zeros());
        bits &= bits - 1;
    }
}
