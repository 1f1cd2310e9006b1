//! The configuration of a function as `virtio-drivers` reads it: a copy of what was checked.
//!
//! [`PciTransport::new`](virtio_drivers::transport::pci::PciTransport::new) follows a list of capabilities for as long as it
//! goes on, adds what a function says without regard to its overflow, and takes the addresses of BARs for those of
//! processors. In the copy the list has four capabilities at most, each in a BAR, and BARs are where processors see them.

use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};
use virtio_drivers::transport::pci::{
    VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_DEVICE_CFG, VIRTIO_PCI_CAP_ISR_CFG,
    VIRTIO_PCI_CAP_NOTIFY_CFG, VIRTIO_VENDOR_ID,
};

use super::NotUsed;
use super::bars::{MOST_BARS, Place};
use super::capabilities::{Structure, Structures};

/// Words of a configuration, and where it has what.
const WORDS: usize = 64;
const STATUS: usize = 1;
const BARS: usize = 4;
const LIST: usize = 13;
/// Words of a capability: that for notifications has one more than the others.
const CAPABILITY: usize = 5;
/// Where the first of them is.
const FIRST: usize = 16;

const HAS_LIST: u32 = 1 << 20;
const VENDOR: u32 = 9;
/// A BAR of 64 bits.
const WIDE: u32 = 4;

/// The copy.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    words: [u32; WORDS],
    /// What each BAR reads as when all its bits were set.
    sizes: [u32; MOST_BARS],
}

impl Copy {
    /// That of a device with this identity and these structures, in BARs that are at `places`.
    ///
    /// # Errors
    ///
    /// [`NotUsed::Scattered`]: in more BARs of 64 bits than there are.
    pub(super) fn new(
        device: u16,
        structures: &Structures,
        places: &[Option<Place>; MOST_BARS],
    ) -> Result<Self, NotUsed> {
        let mut copy = Self { words: [0; WORDS], sizes: [0; MOST_BARS] };
        copy.words[0] = u32::from(VIRTIO_VENDOR_ID) | u32::from(device) << 16;
        copy.words[STATUS] = HAS_LIST;
        copy.words[LIST] = 4 * FIRST as u32;
        // The BARs that are in the copy so far, each in two words.
        let mut shown: [Option<usize>; MOST_BARS / 2] = [None; MOST_BARS / 2];
        let all = [
            (VIRTIO_PCI_CAP_COMMON_CFG, Some(structures.common)),
            (VIRTIO_PCI_CAP_NOTIFY_CFG, Some(structures.notify)),
            (VIRTIO_PCI_CAP_ISR_CFG, Some(structures.interrupt)),
            (VIRTIO_PCI_CAP_DEVICE_CFG, structures.device),
        ];
        let there = all.iter().filter_map(|(kind, structure)| Some((*kind, (*structure)?)));
        let last = there.clone().count() - 1;
        for (number, (kind, Structure { bar, offset, bytes })) in there.enumerate() {
            let pair = shown.iter().position(|shown| shown.is_none_or(|shown| shown == bar));
            let pair = pair.ok_or(NotUsed::Scattered)?;
            if shown[pair].replace(bar).is_none() {
                copy.show(2 * pair, places[bar].ok_or(NotUsed::Structures)?);
            }
            let at = FIRST + CAPABILITY * number;
            let next = if number == last { 0 } else { 4 * (at + CAPABILITY) as u32 };
            let head = VENDOR | next << 8 | (4 * CAPABILITY as u32) << 16 | u32::from(kind) << 24;
            let words = [head, 2 * pair as u32, offset, bytes, structures.multiplier];
            copy.words[at..at + CAPABILITY].copy_from_slice(&words);
        }
        Ok(copy)
    }

    fn show(&mut self, bar: usize, place: Place) {
        let halves = |value: u64| [value as u32 | WIDE, (value >> 32) as u32];
        self.words[BARS + bar..BARS + bar + 2].copy_from_slice(&halves(place.cpu));
        self.sizes[bar..bar + 2].copy_from_slice(&halves(place.bytes.wrapping_neg()));
    }
}

impl ConfigurationAccess for Copy {
    fn read_word(&self, _function: DeviceFunction, offset: u8) -> u32 {
        self.words[usize::from(offset) / 4]
    }

    fn write_word(&mut self, _function: DeviceFunction, offset: u8, data: u32) {
        // Nothing but BARs is written: to know their sizes, and then as they were.
        let Some(bar) = (usize::from(offset) / 4).checked_sub(BARS) else { return };
        let Some(size) = self.sizes.get(bar) else { return };
        self.words[BARS + bar] = if data == u32::MAX { *size } else { data };
    }

    unsafe fn unsafe_clone(&self) -> Self {
        self.clone()
    }
}
