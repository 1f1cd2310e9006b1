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

use super::backend::Device;
use super::mmio::{Mmio, SIZE};

const INTERRUPT_STATUS: u64 = 0x060;

/// The registers beside it that change by the driver's writes alone, and the last one, which changes also without.
const WRITTEN: [u64; 3] = [0x010, 0x034, 0x044];
const STATUS: u64 = 0x070;

/// The most words of a configuration that change.
pub(super) const MOST_WORDS: usize = 3;
const WORDS: usize = WRITTEN.len() + MOST_WORDS + 1;

/// The words that change, in the order in which they are renewed: first those that change by the driver's writes alone.
fn words<D: Device>() -> impl Iterator<Item = u64> {
    const { assert!(D::WRITTEN.len() + D::CHANGED.len() <= MOST_WORDS) }
    let configuration = D::WRITTEN.iter().chain(D::CHANGED).copied();
    WRITTEN.into_iter().chain(configuration).chain([STATUS])
}

/// What a guest was shown of the registers of a device.
#[derive(Debug)]
pub struct Shown {
    words: [u32; WORDS],
    reasons: u32,
}

fn word<D: Device>(device: &Mmio<D>, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    device.read(offset, &mut bytes);
    u32::from_le_bytes(bytes)
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
            let value = word(device, offset);
            if value != 0 {
                put(offset, value)?;
            }
        }
        let mut shown = [0; WORDS];
        for (offset, shown) in words::<D>().zip(&mut shown) {
            *shown = word(device, offset);
        }
        Ok(Self { words: shown, reasons: word(device, INTERRUPT_STATUS) })
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
        let reasons = word(device, INTERRUPT_STATUS);
        show(INTERRUPT_STATUS, reasons & self.reasons, &mut self.reasons);
        for (offset, shown) in words::<D>().zip(&mut self.words).skip(first) {
            show(offset, word(device, offset), shown);
        }
        show(INTERRUPT_STATUS, reasons, &mut self.reasons);
    }
}
