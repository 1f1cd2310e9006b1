//! The capabilities of a function that say where its registers are (virtio 1.2, 4.1.4), and those by which it could send
//! messages as its interrupts (PCI 3.0, 6.8).

use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};
use virtio_drivers::transport::pci::{
    VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_DEVICE_CFG, VIRTIO_PCI_CAP_ISR_CFG,
    VIRTIO_PCI_CAP_NOTIFY_CFG,
};

use super::NotUsed;
use super::bars::{Bar, MOST_BARS};

const STATUS: u8 = 4;
/// In the word of the status: there is a list of capabilities.
const HAS_LIST: u32 = 1 << 20;
const LIST: u8 = 0x34;
/// Where capabilities may be, and how many there is room for.
const FIRST: u8 = 0x40;
const MOST: usize = (0x100 - FIRST as usize) / 4;

const MSI: u8 = 5;
const VENDOR: u8 = 9;
const MSIX: u8 = 0x11;
/// In the first word of either: messages are sent.
const MSI_ENABLED: u32 = 1 << 16;
const MSIX_ENABLED: u32 = 1 << 31;

/// The least bytes of a capability of virtio's, and of that for notifications.
const SHORTEST: u8 = 16;
const SHORTEST_NOTIFY: u8 = 20;

/// The least bytes of each structure: of the common one, of that for notifications, of the interrupt's, and of the
/// device's own.
const LEAST: [u32; 4] = [56, 2, 1, 4];

/// A part of a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Structure {
    pub(super) bar: usize,
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

/// Where the registers of a device are.
#[derive(Clone, Debug)]
pub(super) struct Structures {
    pub(super) common: Structure,
    pub(super) notify: Structure,
    /// How far apart the registers of queues are in `notify`.
    pub(super) multiplier: u32,
    pub(super) interrupt: Structure,
    pub(super) device: Option<Structure>,
    /// Where MSI and MSI-X are turned on, and by which bit.
    pub(super) interrupts: [Option<(u8, u32)>; 2],
}

/// Where the registers of a function with these BARs are.
///
/// # Errors
///
/// `None` where it does not say so.
pub(super) fn structures(
    access: &impl ConfigurationAccess,
    at: DeviceFunction,
    bars: &[Option<Bar>; MOST_BARS],
) -> Result<Structures, Option<NotUsed>> {
    let read = |offset: u8| access.read_word(at, offset);
    let mut found = [None; 4];
    let mut interrupts = [None; 2];
    let mut multiplier = 0;
    let mut next = if read(STATUS) & HAS_LIST == 0 { 0 } else { read(LIST) as u8 };
    for turn in 0.. {
        // The lower two bits are reserved.
        let offset = next & !3;
        if offset == 0 {
            break;
        }
        if turn == MOST || offset < FIRST {
            return Err(Some(NotUsed::Capabilities));
        }
        let [id, following, len, kind] = read(offset).to_le_bytes();
        next = following;
        match id {
            MSI => interrupts[0] = Some((offset, MSI_ENABLED)),
            MSIX => interrupts[1] = Some((offset, MSIX_ENABLED)),
            VENDOR if is_of_virtio(offset, len, kind) => {
                let place = usize::from(kind) - 1;
                let structure = Structure {
                    bar: usize::from(read(offset + 4) as u8),
                    offset: read(offset + 8),
                    bytes: read(offset + 12),
                };
                // The first that can be used counts: another may be in ports, or in a BAR of a later specification.
                let fits = fits(&structure, bars, LEAST[place]);
                if found[place].is_none() && fits {
                    found[place] = Some(structure);
                    if kind == VIRTIO_PCI_CAP_NOTIFY_CFG {
                        multiplier = read(offset + 16);
                    }
                }
            }
            _ => {}
        }
    }
    let [Some(common), Some(notify), Some(interrupt), device] = found else { return Err(None) };
    let is_aligned = |structure: Structure, by| structure.offset.is_multiple_of(by);
    let are_aligned = is_aligned(common, 8)
        && is_aligned(notify, 2)
        && device.is_none_or(|device| is_aligned(device, 4));
    // The registers of notifications have 16 bits.
    if !are_aligned || !multiplier.is_multiple_of(2) {
        return Err(Some(NotUsed::Structures));
    }
    Ok(Structures { common, notify, multiplier, interrupt, device, interrupts })
}

/// Whether a capability is one of the four that are used, and has all of its words.
fn is_of_virtio(offset: u8, len: u8, kind: u8) -> bool {
    let shortest = match kind {
        VIRTIO_PCI_CAP_COMMON_CFG | VIRTIO_PCI_CAP_ISR_CFG | VIRTIO_PCI_CAP_DEVICE_CFG => SHORTEST,
        VIRTIO_PCI_CAP_NOTIFY_CFG => SHORTEST_NOTIFY,
        _ => return false,
    };
    len >= shortest && usize::from(offset) + usize::from(shortest) <= 0x100
}

/// Whether a structure is in its BAR, has so many bytes, and ends where 32 bits say.
fn fits(structure: &Structure, bars: &[Option<Bar>; MOST_BARS], least: u32) -> bool {
    let Some(Some(bar)) = bars.get(structure.bar) else { return false };
    let end = u64::from(structure.offset) + u64::from(structure.bytes);
    structure.bytes >= least && end <= bar.bytes.min(u32::MAX.into())
}
