//! The devices of a guest's machine, as the exits to them are counted.

use crate::arm64::layout::{
    CARD, CLOCK, CLOCK_BYTES, CONSOLE, DISK, DISTRIBUTOR, DISTRIBUTOR_BYTES, ENTROPY, IDENTITY,
    IDENTITY_BYTES, ITS, ITS_BYTES, REDISTRIBUTOR_BYTES, REDISTRIBUTORS, UART, UART_BYTES,
    VIRTIO_BYTES,
};
use crate::plan::MAX_VCPUS;

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Part {
    Distributor,
    Redistributors,
    Its,
    Uart,
    Clock,
    Identity,
    Entropy,
    Disk,
    Card,
    Console,
}

const REDISTRIBUTORS_BYTES: u64 = REDISTRIBUTOR_BYTES * MAX_VCPUS as u64;

/// Each of them, what it is called, and where its registers are.
const ALL: [(Part, &str, u64, u64); 10] = [
    (Part::Distributor, "gicd", DISTRIBUTOR, DISTRIBUTOR_BYTES),
    (Part::Redistributors, "gicr", REDISTRIBUTORS, REDISTRIBUTORS_BYTES),
    (Part::Its, "its", ITS, ITS_BYTES),
    (Part::Uart, "pl011", UART, UART_BYTES),
    (Part::Clock, "pl031", CLOCK, CLOCK_BYTES),
    (Part::Identity, "fork", IDENTITY, IDENTITY_BYTES),
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
    fn each_register_is_of_one_device_and_memory_of_none() {
        for (number, (part, _, start, bytes)) in ALL.into_iter().enumerate() {
            assert_eq!(part as usize, number);
            assert_eq!((Part::at(start), Part::at(start + bytes - 1)), (Some(part), Some(part)));
            let next = Part::at(start + bytes);
            assert_ne!(next, Some(part));
        }
        assert_eq!([0, crate::arm64::layout::MEMORY, u64::MAX].map(Part::at), [None; 3]);
    }
}
