//! The guest: it asks for an order by reading a register of a device, does it so many times, and asks again.
//!
//! No device is registered at [`BELL`], so each read of that register exits to the caller that runs the vCPU. Each
//! architecture has its own code for the same orders. A side has that of the processor that it runs on.

pub mod arm64;
pub mod x86;

#[cfg(target_arch = "aarch64")]
pub use arm64::{BELL, DOORBELL, ENTRY, LATER_DOORBELL, MEMORY, REGION};
#[cfg(not(target_arch = "aarch64"))]
pub use x86::{BELL, DOORBELL, ENTRY, LATER_DOORBELL, MEMORY, REGION};

/// The bytes of memory that it starts with. After them come the pages that it writes to, from [`REGION`] on.
pub const MEMORY_BYTES: u64 = 2 << 20;
/// Bytes of [`DOORBELL`], and of [`LATER_DOORBELL`].
pub const DOORBELL_BYTES: u64 = 4;

/// An order to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Order {
    /// Ask again, at once.
    Ask = 0,
    /// Write to so many pages of 4 KiB, the first at [`REGION`].
    Pages = 1,
    /// Write to the first word of so many blocks of 2 MiB.
    Blocks = 2,
    /// Make so many calls that the hypervisor answers: of arm64's `PSCI_VERSION`, of x86's `CPUID`.
    Calls = 3,
    /// Write to [`DOORBELL`] so many times.
    Rings = 4,
    /// Read a register of the interrupt controller so many times: of arm64's `GICD_TYPER`, of x86's the IOAPIC's window.
    Reads = 5,
    /// Turn MMU and caches on, by the guest's table. On x86 they are on.
    Caches = 6,
    /// Set the interrupt controller up, for the virtual timer's interrupt and for interrupts from other vCPUs.
    Interrupts = 7,
    /// Have the timer interrupt at once, and take that interrupt, so many times.
    Timers = 8,
    /// Wait by `WFI` for the timer, which is due after 2 ms, so many times.
    Sleeps = 9,
    /// Send an interrupt to vCPU 1, and wait for its answer by `WFI`, so many times.
    Sends = 10,
    /// Wait for such an interrupt by `WFI`, and send one back to vCPU 0, so many times.
    Answers = 11,
    /// Write to so many pages, the first at [`REGION`], with as many pages from one to the next as [`spread`] says.
    Spread = 12,
}

/// The value that the guest is to read at [`BELL`]. `times` is at least 1, unless the order is [`Order::Ask`].
pub const fn answer(order: Order, times: u32) -> u64 {
    order as u64 | (times as u64) << 8
}

/// The value that the guest is to read for [`Order::Spread`]: `times` writes, to pages that are `stride` pages apart.
pub const fn spread(times: u32, stride: u16) -> u64 {
    answer(Order::Spread, times) | (stride as u64) << 40
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_order_in_its_lowest_byte() {
        assert_eq!(answer(Order::Ask, 0), 0);
        assert_eq!(answer(Order::Pages, 65_536), 65_536 << 8 | 1);
        assert_eq!(answer(Order::Caches, u32::MAX), 0xff_ffff_ff06);
        assert_eq!(spread(656, 100), (100 << 40) + (656 << 8) + 12);
        assert_eq!(spread(u32::MAX, u16::MAX) >> 40, u16::MAX.into());
    }
}
