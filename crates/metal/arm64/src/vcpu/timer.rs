//! A guest's timer, and the counter that it goes by.

use mayfly_state::{Error, SectionReader, SectionWriter};

/// `CNT*_CTL_EL0`: on; its interrupt masked.
pub(crate) const ENABLE: u64 = 1;
pub(crate) const MASKED: u64 = 2;

/// A guest's timer, while it is not in the hardware's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timer {
    pub(crate) control: u64,
    pub(crate) compare: u64,
}

impl Timer {
    /// When it is due, in ticks of the physical counter, if it is on and not masked: `now`, or later. The timer's counter
    /// is `offset` ticks behind. That of a machine which was loaded from its state may be ahead of the physical one, so
    /// that `offset` has wrapped.
    pub fn due(self, offset: u64, now: u64) -> Option<u64> {
        let left = self.compare.saturating_sub(now.wrapping_sub(offset));
        (self.control & (ENABLE | MASKED) == ENABLE).then(|| now.saturating_add(left))
    }

    pub(super) fn save(self, to: &mut SectionWriter<'_, '_>) {
        to.u64(self.control);
        to.u64(self.compare);
    }

    pub(super) fn load(from: &mut SectionReader<'_>) -> Result<Self, Error> {
        let control = from.bits64("timer control", ENABLE | MASKED)?;
        Ok(Self { control, compare: from.u64("timer compare value")? })
    }
}
