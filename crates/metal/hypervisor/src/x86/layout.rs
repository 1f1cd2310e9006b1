//! The machine of a guest on x86-64: memory from zero on, and the addresses of the devices above it.

pub use mayfly_x86::machine::layout::{
    CLOCK, IOAPIC, RESET, SLEEP_CONTROL, UART, UART_PIN as UART_INTERRUPT,
};

/// The interrupt of the clock, which never comes: its pin of the IOAPIC.
pub const CLOCK_INTERRUPT: u32 = 8;
/// Where memory begins.
pub const MEMORY: u64 = 0;
/// The most memory of a VM: it lies below the devices.
pub const MOST_MEMORY: u64 = 3 << 30;
/// Where the registers of all virtio devices are, in one page.
pub const VIRTIO: u64 = 0xfeb0_0000;
/// Bytes of it.
pub const VIRTIO_PAGE_BYTES: u64 = 0x1000;
/// Bytes of a virtio device's registers.
pub const VIRTIO_BYTES: u64 = 0x200;
/// The source of entropy, and its pin of the IOAPIC.
pub const ENTROPY: u64 = VIRTIO;
/// Its pin.
pub const ENTROPY_INTERRUPT: u32 = 16;
/// The disk.
pub const DISK: u64 = VIRTIO + VIRTIO_BYTES;
/// Its pin.
pub const DISK_INTERRUPT: u32 = 17;
/// The network card.
pub const CARD: u64 = VIRTIO + 2 * VIRTIO_BYTES;
/// Its pin.
pub const CARD_INTERRUPT: u32 = 18;
/// The console beside the serial port.
pub const CONSOLE: u64 = VIRTIO + 3 * VIRTIO_BYTES;
/// Its pin.
pub const CONSOLE_INTERRUPT: u32 = 19;
/// The balloon.
pub const BALLOON: u64 = VIRTIO + 4 * VIRTIO_BYTES;
/// Its pin.
pub const BALLOON_INTERRUPT: u32 = 20;

/// Where in the memory of a guest of `memory` bytes the page is that it finds at [`VIRTIO`], too: the last, which its memory map
/// does not have.
pub const fn registers(memory: u64) -> u64 {
    memory - VIRTIO_PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_devices_do_not_overlap() {
        let places = [
            MOST_MEMORY,
            ENTROPY,
            DISK,
            CARD,
            CONSOLE,
            BALLOON,
            VIRTIO + VIRTIO_PAGE_BYTES,
            IOAPIC,
            mayfly_x86::machine::layout::LOCAL_APIC,
        ];
        assert!(places.is_sorted_by(|one, next| one <= next && *one != *next || *one == ENTROPY));
        assert_eq!(registers(64 << 20) + VIRTIO_PAGE_BYTES, 64 << 20);
    }
}
