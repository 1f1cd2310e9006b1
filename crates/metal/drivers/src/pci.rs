//! Virtio devices on a PCI bus (virtio 1.2, 4.1): functions are looked at, given addresses for their registers, and made
//! [`PciRegisters`], behind which the drivers of this crate do not differ from those of devices in memory.
//!
//! **One bus.** The functions of a root bus are looked at, each once ([`Bus::function`]). What is behind a bridge is not.
//!
//! **By a line.** A device interrupts by `INTx`. MSI and MSI-X are off.
//!
//! **What is trusted.** A function may say anything in its configuration: lists of capabilities that do not end, and
//! structures that are not in a BAR, are [refused](NotUsed). `virtio-drivers` does not read the configuration itself. It
//! reads a copy of what was checked here.

mod bars;
mod bus;
mod capabilities;
mod copy;
mod registers;

pub use bars::{Bar, MOST_BARS, Place, Window, Windows};
pub use bus::{Bus, Function};
pub use registers::{PciRegisters, Prepared};
pub use virtio_drivers::transport::pci::VirtioPciError;
pub use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};

/// Why a function is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotUsed {
    /// It is of before virtio 1.0.
    #[error(
        "it is a legacy device, without the registers of virtio 1.0 (QEMU: disable-modern=off)"
    )]
    Legacy,
    /// Its list of capabilities has no end.
    #[error("its list of capabilities has no end, or leaves the configuration space")]
    Capabilities,
    /// A structure of its registers is not in the BAR that it names.
    #[error("its registers are not where it says")]
    Structures,
    /// Its structures are in more BARs than is foreseen.
    #[error("its registers are in more than three BARs")]
    Scattered,
    /// A BAR is of no kind or size that there is.
    #[error("its BAR {0} is of no kind or size that there is")]
    Bar(usize),
    /// The windows of the bus have no room for a BAR.
    #[error("the bus has no addresses for its BAR {0}")]
    NoRoom(usize),
    /// `virtio-drivers` does not take it.
    #[error("{0}")]
    Transport(#[from] VirtioPciError),
}
