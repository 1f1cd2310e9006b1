//! The devices of a guest's machine, as the exits to them are counted: by the address in memory, or the port.

use crate::x86::layout::{
    CARD, CLOCK, CONSOLE, DISK, ENTROPY, IOAPIC, SLEEP_CONTROL, UART, VIRTIO_BYTES,
};

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Part {
    Ioapic,
    Uart,
    Clock,
    Power,
    Entropy,
    Disk,
    Card,
    Console,
}

/// Each of them, what it is called, and where its registers are.
const ALL: [(Part, &str, u64, u64); 8] = [
    (Part::Ioapic, "ioapic", IOAPIC, 0x1000),
    (Part::Uart, "16550", UART as u64, 8),
    (Part::Clock, "cmos", CLOCK as u64, 2),
    (Part::Power, "acpi", SLEEP_CONTROL as u64, 3),
    (Part::Entropy, "virtio-rng", ENTROPY, VIRTIO_BYTES),
    (Part::Disk, "virtio-blk", DISK, VIRTIO_BYTES),
    (Part::Card, "virtio-net", CARD, VIRTIO_BYTES),
    (Part::Console, "virtio-console", CONSOLE, VIRTIO_BYTES),
];

impl Part {
    /// How many there are.
    pub const COUNT: usize = ALL.len();

    /// The one whose registers are at an address.
    pub fn at(address: u64) -> Option<Self> {
        ALL.iter()
            .find(|(_, _, start, bytes)| address.wrapping_sub(*start) < *bytes)
            .map(|(part, ..)| *part)
    }

    /// Each of them, and what it is called.
    pub fn all() -> impl Iterator<Item = (Self, &'static str)> {
        ALL.iter().map(|(part, name, ..)| (*part, *name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_register_is_of_one_device() {
        for (number, (part, _, start, bytes)) in ALL.into_iter().enumerate() {
            assert_eq!(part as usize, number);
            assert_eq!((Part::at(start), Part::at(start + bytes - 1)), (Some(part), Some(part)));
            assert_ne!(Part::at(start + bytes), Some(part));
        }
        assert_eq!([0, 0x80, u64::MAX].map(Part::at), [None; 3]);
    }
}
