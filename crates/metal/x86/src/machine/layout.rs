//! Where things are in a guest's machine: memory from zero on, and the interrupt controllers below 4 GiB.

/// The tables of descriptors that a kernel begins with.
pub const DESCRIPTORS: u64 = 0x1000;
/// Bytes of them: four.
pub const DESCRIPTORS_BYTES: usize = 4 * 8;
/// The boot parameters.
pub const PARAMETERS: u64 = 0x7000;
/// The page tables that a kernel begins with: one of each of the upper two levels, and one for each GiB.
pub const PAGE_TABLES: u64 = 0x9000;
/// How many GiB they map, each to itself.
pub const MAPPED_GIB: u64 = 4;
/// The kernel's command line.
pub const COMMAND_LINE: u64 = 0x2_0000;
/// Where memory ends that is the kernel's, below 1 MiB.
pub const LOW_END: u64 = 0x9_fc00;
/// The ACPI's root pointer, which is looked for from here on, and the tables behind it.
pub const ACPI: u64 = 0xe_0000;
/// What a PC has its firmware in, of which only the end is used.
pub const FIRMWARE: u64 = 0xf_0000;
/// Where a processor begins in real mode that is to begin anew: a guest without any other way jumps there.
pub const RESET_VECTOR: u64 = 0xf_fff0;
/// Where memory goes on.
pub const HIGH: u64 = 0x10_0000;

/// The IOAPIC.
pub const IOAPIC: u64 = 0xfec0_0000;
/// The local APICs.
pub const LOCAL_APIC: u64 = 0xfee0_0000;

/// The first port of the UART.
pub const UART: u16 = 0x3f8;
/// Its pin of the IOAPIC.
pub const UART_PIN: u32 = 4;
/// The first port of the clock.
pub const CLOCK: u16 = 0x70;
/// The ACPI's sleep control and sleep status registers, and the one that resets the machine.
pub const SLEEP_CONTROL: u16 = 0x600;
/// The second of them.
pub const SLEEP_STATUS: u16 = 0x601;
/// The third.
pub const RESET: u16 = 0x602;
/// What resets it.
pub const RESET_VALUE: u8 = 1;
/// The number of the state "off", as the tables have it.
pub const OFF: u8 = 5;

/// What is at [`RESET_VECTOR`]: it resets the machine. `mov dx, RESET`, `mov al, RESET_VALUE`, `out dx, al`, and `hlt` for
/// good.
pub const RESET_CODE: [u8; 9] =
    [0xba, RESET as u8, (RESET >> 8) as u8, 0xb0, RESET_VALUE, 0xee, 0xf4, 0xeb, 0xfd];

/// What is written to the sleep control register to turn the machine off: `SLP_EN`, and the state (ACPI 6.5, 4.8.3.7).
pub const fn is_off(value: u8) -> bool {
    value & 0x20 != 0 && value >> 2 & 7 == OFF
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_begins_with_does_not_overlap() {
        let tables = PAGE_TABLES + (2 + MAPPED_GIB) * 0x1000;
        let places = [
            DESCRIPTORS,
            PARAMETERS,
            PAGE_TABLES,
            tables,
            COMMAND_LINE,
            LOW_END,
            ACPI,
            FIRMWARE,
            RESET_VECTOR,
            HIGH,
        ];
        assert!(places.is_sorted() && PARAMETERS + 0x1000 <= PAGE_TABLES && tables <= COMMAND_LINE);
    }

    #[test]
    fn the_reset_vector_has_code_that_resets_the_machine_and_never_leaves_it() {
        use mayfly_x86_decode::{Mode, Operation, Port, Width, decode};
        let out = decode(Mode::Bits16, &RESET_CODE[5..]).unwrap();
        assert_eq!(out.operation, Operation::Out(Width::Byte, Port::Dx));
        assert_eq!(
            (RESET_CODE[0], u16::from_le_bytes([RESET_CODE[1], RESET_CODE[2]])),
            (0xba, RESET)
        );
        assert_eq!(RESET_CODE[3..5], [0xb0, RESET_VALUE]);
        // The jump leads back to the HLT before it.
        assert_eq!((RESET_CODE[6], RESET_CODE[7], RESET_CODE[8].cast_signed()), (0xf4, 0xeb, -3));
        assert!(RESET_VECTOR + RESET_CODE.len() as u64 <= HIGH);
    }

    #[test]
    fn the_machine_is_off_by_one_word_alone() {
        assert_eq!((0..=u8::MAX).filter(|&value| is_off(value)).count(), 16);
        assert!(is_off(0x34) && !is_off(0x14) && !is_off(0x30));
    }
}
