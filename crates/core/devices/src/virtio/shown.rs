//! The registers of a device in memory, from which its guest reads them without an exit. No read of a register changes
//! anything, so only those that have changed are renewed there.
//!
//! **Order.** Another vCPU may read while words are renewed, and two things always hold for it:
//!
//! - *What it is interrupted for is there.* Where `InterruptStatus` says that the configuration has changed, the configuration is
//!   as it is now, and Status says `DEVICE_NEEDS_RESET` if that is why. So reasons that are new are shown after all else.
//! - *Nothing of before a reset is there after it.* Where Status is 0 again, `InterruptStatus` has no reason that was forgotten
//!   by the reset. So reasons that are no more go before all else, and Status comes after all that a reset changes.
//!
//! One place for `InterruptStatus` in the order could not do both, since its reasons come and go. The embedder shows each
//! word before the next (with release), and drives the interrupt line when all are shown.

use core::marker::PhantomData;

use super::backend::Device;
use super::mmio::{Mmio, SIZE};

const INTERRUPT_STATUS: u64 = 0x060;

/// The registers beside it that change by the driver's writes alone, and the last one, which changes also without.
const WRITTEN: [u64; 3] = [0x010, 0x034, 0x044];
const STATUS: u64 = 0x070;

/// The most words of a configuration that change.
pub(super) const MOST_WORDS: usize = 3;
const WORDS: usize = WRITTEN.len() + MOST_WORDS + 1;

/// The words of a device that change, in the order in which they are renewed: first those that change by the driver's writes
/// alone.
struct Words<D>(PhantomData<D>);

impl<D: Device> Words<D> {
    const COUNT: usize = WRITTEN.len() + D::WRITTEN.len() + D::CHANGED.len() + 1;

    const TABLE: [u64; WORDS] = {
        assert!(Self::COUNT <= WORDS);
        let mut all = [STATUS; WORDS];
        let mut count = 0;
        let mut parts: &[&[u64]] = &[&WRITTEN, D::WRITTEN, D::CHANGED];
        while let [part, rest @ ..] = parts {
            let mut words = *part;
            while let [word, others @ ..] = words {
                all[count] = *word;
                (count, words) = (count + 1, others);
            }
            parts = rest;
        }
        all
    };

    const ALL: &'static [u64] = {
        let table: &'static [u64; WORDS] = &Self::TABLE;
        table.split_at(Self::COUNT).0
    };
}

/// What a guest was shown of the registers of a device.
#[derive(Debug)]
pub struct Shown {
    words: [u32; WORDS],
    reasons: u32,
}

impl Shown {
    /// Shows all words of a device whose guest has not begun, where there are zeroes: `put` is given the offset of each that is
    /// none, and its value.
    ///
    /// # Errors
    ///
    /// That of `put`.
    pub fn try_new<D: Device, E>(
        device: &Mmio<D>,
        mut put: impl FnMut(u64, u32) -> Result<(), E>,
    ) -> Result<Self, E> {
        for offset in (0..SIZE).step_by(4) {
            let value = device.word_at(offset);
            if value != 0 {
                put(offset, value)?;
            }
        }
        let mut shown = [0; WORDS];
        for (offset, shown) in Words::<D>::ALL.iter().zip(&mut shown) {
            *shown = device.word_at(*offset);
        }
        Ok(Self { words: shown, reasons: device.word_at(INTERRUPT_STATUS) })
    }

    /// The driver has written a register: shows all that has changed. A word that `put` does not show is tried again the next
    /// time.
    pub fn is_written<D: Device, E>(
        &mut self,
        device: &Mmio<D>,
        put: impl FnMut(u64, u32) -> Result<(), E>,
    ) {
        self.renew(device, 0, put);
    }

    /// The same where the device has served its driver, or has changed by itself.
    pub fn is_served<D: Device, E>(
        &mut self,
        device: &Mmio<D>,
        put: impl FnMut(u64, u32) -> Result<(), E>,
    ) {
        self.renew(device, WRITTEN.len() + D::WRITTEN.len(), put);
    }

    fn renew<D: Device, E>(
        &mut self,
        device: &Mmio<D>,
        first: usize,
        mut put: impl FnMut(u64, u32) -> Result<(), E>,
    ) {
        let mut show = |offset, value, shown: &mut u32| {
            if value != *shown && put(offset, value).is_ok() {
                *shown = value;
            }
        };
        let reasons = device.word_at(INTERRUPT_STATUS);
        show(INTERRUPT_STATUS, reasons & self.reasons, &mut self.reasons);
        for (offset, shown) in Words::<D>::ALL[first..].iter().zip(&mut self.words[first..]) {
            show(*offset, device.word_at(*offset), shown);
        }
        show(INTERRUPT_STATUS, reasons, &mut self.reasons);
    }
}
