//! The ACPI tables of a guest: of reduced hardware, so that it looks for no PC's timers, interrupt controllers or power
//! management, but for what they name (ACPI 6.5, 5.2).

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use acpi_tables::Aml;
use acpi_tables::aml;
use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{
    EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic,
};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;

use super::layout;

const OEM: [u8; 6] = *b"MAYFLY";
const TABLE: [u8; 8] = *b"MAYFLYVM";
const REVISION: u32 = 1;
/// Tables begin at a multiple of this.
const ALIGNMENT: usize = 16;

/// Why there are no tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ACPI tables of {0} vCPUs have {1} bytes, and there is room for {2}")]
pub struct TooLarge(u32, usize, usize);

/// A virtio device whose registers are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Virtio {
    /// Where they are.
    pub address: u32,
    /// Bytes of them.
    pub bytes: u32,
    /// Its pin of the IOAPIC, which interrupts by edges.
    pub pin: u32,
}

/// All tables of a guest with so many vCPUs, and these devices, from [`layout::ACPI`] on. The root pointer is first. Each table
/// takes some thousand instructions: `pause` is called behind each.
///
/// # Errors
///
/// They have more bytes than there are before the firmware.
pub fn tables(vcpus: u32, virtio: &[Virtio], mut pause: impl FnMut()) -> Result<Vec<u8>, TooLarge> {
    let mut bytes = vec![0; Rsdp::len().next_multiple_of(ALIGNMENT)];
    let definitions = definitions(virtio, &mut pause);
    let mut put = |table: &dyn Aml| {
        let at = bytes.len();
        table.to_aml_bytes(&mut bytes);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        pause();
        layout::ACPI + at as u64
    };
    let definitions = put(&definitions);
    let fixed = put(&fixed(definitions));
    let interrupts = put(&interrupts(vcpus));
    let mut list = XSDT::new(OEM, TABLE, REVISION);
    list.add_entry(fixed);
    list.add_entry(interrupts);
    let list = put(&list);
    let mut root = Vec::new();
    Rsdp::new(OEM, list).to_aml_bytes(&mut root);
    bytes[..root.len()].copy_from_slice(&root);
    let (has, most) = (bytes.len(), (layout::FIRMWARE - layout::ACPI) as usize);
    if has > most { Err(TooLarge(vcpus, has, most)) } else { Ok(bytes) }
}

fn register(port: u16) -> GAS {
    GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, port.into())
}

/// FADT.
fn fixed(definitions: u64) -> impl Aml {
    let mut table = FADTBuilder::new(OEM, TABLE, REVISION)
        .dsdt_64(definitions)
        .flag(Flags::Wbinvd)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup);
    table.sleep_control_reg = register(layout::SLEEP_CONTROL);
    table.sleep_status_reg = register(layout::SLEEP_STATUS);
    table.reset_reg = register(layout::RESET);
    table.reset_value = layout::RESET_VALUE;
    // There is no VGA and no keyboard controller (bits 2 and 1); the CMOS clock is there (bit 5 is clear).
    table.iapc_boot_arch = (1 << 2).into();
    table.finalize()
}

/// MADT.
fn interrupts(vcpus: u32) -> impl Aml {
    let address = LocalInterruptController::Address(layout::LOCAL_APIC as u32);
    let mut table = MADT::new(OEM, TABLE, REVISION, address);
    for number in 0..vcpus as u8 {
        table.add_structure(ProcessorLocalApic::new(number, number, EnabledStatus::Enabled));
    }
    table.add_structure(IoApic::new(0, layout::IOAPIC as u32, 0));
    table
}

/// What Linux knows a virtio device with registers in memory by (`drivers/virtio/virtio_mmio.c`).
const VIRTIO: &str = "LNRO0005";

/// DSDT: the UART; the clock, which never interrupts; virtio devices; and the state "off".
fn definitions(virtio: &[Virtio], pause: &mut impl FnMut()) -> Sdt {
    let (uart, clock) = (layout::UART, layout::CLOCK);
    let ports = aml::IO::new(uart, uart, 8, 8);
    let line = aml::Interrupt::new(true, true, false, false, layout::UART_PIN);
    let clock = aml::IO::new(clock, clock, 2, 2);
    let off = aml::Package::new(vec![&layout::OFF]);
    let mut bytes = Vec::new();
    let (uart, its_clock) = (aml::EISAName::new("PNP0501"), aml::EISAName::new("PNP0B00"));
    device("_SB_.COM1", &uart, 0, vec![&ports, &line], &mut bytes);
    pause();
    device("_SB_.RTC_", &its_clock, 0, vec![&clock], &mut bytes);
    for (number, its) in (0_u8..).zip(virtio) {
        let registers = aml::Memory32Fixed::new(true, its.address, its.bytes);
        let line = aml::Interrupt::new(true, true, false, false, its.pin);
        let path = format!("_SB_.VR{number:02}");
        device(&path, &VIRTIO, number, vec![&registers, &line], &mut bytes);
        pause();
    }
    aml::Name::new("_S5_".into(), &off).to_aml_bytes(&mut bytes);
    pause();
    let mut table = Sdt::new(*b"DSDT", 36, 2, OEM, TABLE, REVISION);
    table.append_slice(&bytes);
    pause();
    table
}

fn device(path: &str, id: &dyn Aml, number: u8, resources: Vec<&dyn Aml>, bytes: &mut Vec<u8>) {
    let resources = aml::ResourceTemplate::new(resources);
    let number = aml::Name::new("_UID".into(), &number);
    let id = aml::Name::new("_HID".into(), id);
    let resources = aml::Name::new("_CRS".into(), &resources);
    aml::Device::new(path.into(), vec![&id, &number, &resources]).to_aml_bytes(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: [Virtio; 2] = [
        Virtio { address: 0xfeb0_0000, bytes: 0x200, pin: 16 },
        Virtio { address: 0xfeb0_0200, bytes: 0x200, pin: 17 },
    ];

    /// A table, of which the bytes add up to zero.
    fn table(bytes: &[u8], address: u64, name: [u8; 4]) -> &[u8] {
        let at = (address - layout::ACPI) as usize;
        let size = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        let table = &bytes[at..at + size];
        assert_eq!(table[..4], name);
        assert_eq!(table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)), 0, "{name:?}");
        table
    }

    fn word(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn each_table_is_where_another_says() {
        let bytes = tables(3, &DEVICES, || ()).unwrap();
        assert_eq!(bytes[..8], *b"RSD PTR ");
        assert_eq!(bytes[..36].iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        let list = table(&bytes, word(&bytes, 24), *b"XSDT");
        let fixed = table(&bytes, word(list, 36), *b"FACP");
        let interrupts = table(&bytes, word(list, 44), *b"APIC");
        let definitions = table(&bytes, word(fixed, 140), *b"DSDT");
        assert_eq!(list.len(), 52);

        // Reduced hardware, with the registers for sleep and reset, of 8 bits, among the ports.
        assert_eq!(fixed[112..116], (1_u32 | 1 << 10 | 1 << 20).to_le_bytes());
        assert_eq!(fixed[116..128], [1, 8, 0, 1, 2, 6, 0, 0, 0, 0, 0, 0]);
        assert_eq!(fixed[244..256], [1, 8, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0]);

        // A local APIC for each vCPU, which is enabled, and the IOAPIC.
        assert_eq!(interrupts[36..44], [0, 0, 0xe0, 0xfe, 0, 0, 0, 0]);
        for number in 0..3_u8 {
            let at = 44 + 8 * usize::from(number);
            assert_eq!(interrupts[at..at + 8], [0, 8, number, number, 1, 0, 0, 0]);
        }
        assert_eq!(interrupts[68..], [1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);

        // Each virtio device has its registers, of which an address may be read and written, and its pin, by edges.
        for Virtio { address, bytes, pin } in DEVICES {
            let [address, bytes, pin] = [address, bytes, pin].map(u32::to_le_bytes);
            let resources =
                [&[0x86, 9, 0, 1][..], &address, &bytes, &[0x89, 6, 0, 0b11, 1], &pin].concat();
            assert!(definitions.windows(resources.len()).any(|part| part == resources));
        }
        assert_eq!(definitions.windows(8).filter(|part| part == b"LNRO0005").count(), 2);

        // `Name (_S5, Package (1) {5})`.
        let off = [0x08, b'_', b'S', b'5', b'_', 0x12, 4, 1, 0x0a, layout::OFF];
        assert!(definitions.windows(off.len()).any(|part| part == off), "{definitions:x?}");
    }

    #[test]
    fn tables_of_more_vcpus_than_there_may_be_fit() {
        for vcpus in [1, 64, 255] {
            assert!(tables(vcpus, &DEVICES, || ()).unwrap().len() < 4096);
        }
    }
}
