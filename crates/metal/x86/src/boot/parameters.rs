//! The boot parameters of a kernel: the "zero page" (Linux, Documentation/arch/x86/zero-page.rst and boot.rst).

use super::bzimage::{BzImage, HEADER};

/// Bytes of it.
pub const SIZE: usize = 4096;

const ACPI_RSDP: usize = 0x070;
const E820_ENTRIES: usize = 0x1e8;
const VIDEO_MODE: usize = 0x1fa;
const LOADER: usize = 0x210;
const RAMDISK: usize = 0x218;
const RAMDISK_SIZE: usize = 0x21c;
const COMMAND_LINE: usize = 0x228;
const E820: usize = 0x2d0;
const E820_ENTRY: usize = 20;
const MOST_ENTRIES: usize = 128;

/// `type_of_loader`: one that has no number of its own.
const UNKNOWN_LOADER: u8 = 0xff;
/// `vid_mode`: normal.
const NORMAL: u16 = 0xffff;

/// What memory is, by E820.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's.
    Usable = 1,
    /// Nobody's.
    Reserved = 2,
    /// Tables that the kernel may use when it has read them.
    AcpiTables = 3,
}

/// What a kernel is told.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Where its command line is.
    pub command_line: u32,
    /// Where its ramdisk is, and how many bytes it has: zero if it has none.
    pub ramdisk: (u32, u32),
    /// Where the ACPI's root pointer is.
    pub rsdp: u64,
    /// Its memory: from where to where, and what.
    pub memory: &'a [(u64, u64, Kind)],
}

/// The boot parameters of `kernel`. Of more regions than fit, the first are told.
pub fn parameters(kernel: &BzImage<'_>, told: &Told<'_>) -> [u8; SIZE] {
    let mut page = [0; SIZE];
    let mut put = |at: usize, value: &[u8]| page[at..at + value.len()].copy_from_slice(value);
    put(HEADER, kernel.header);
    put(VIDEO_MODE, &NORMAL.to_le_bytes());
    put(LOADER, &[UNKNOWN_LOADER]);
    put(RAMDISK, &told.ramdisk.0.to_le_bytes());
    put(RAMDISK_SIZE, &told.ramdisk.1.to_le_bytes());
    put(COMMAND_LINE, &told.command_line.to_le_bytes());
    put(ACPI_RSDP, &told.rsdp.to_le_bytes());
    let regions = &told.memory[..told.memory.len().min(MOST_ENTRIES)];
    put(E820_ENTRIES, &[regions.len() as u8]);
    for (number, (start, end, kind)) in regions.iter().enumerate() {
        let at = E820 + number * E820_ENTRY;
        put(at, &start.to_le_bytes());
        put(at + 8, &(end - start).to_le_bytes());
        put(at + 16, &(*kind as u32).to_le_bytes());
    }
    page
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    #[test]
    fn each_field_is_where_the_documentation_has_it() {
        let header = vec![0xcc; 0x268 - HEADER];
        let kernel = BzImage {
            header: &header,
            contents: &[],
            address: 0,
            size: 0,
            initrd_max: 0,
            command_line_max: 0,
        };
        let memory = [(0, 0x9_fc00, Kind::Usable), (0xe_0000, 0x10_0000, Kind::Reserved)];
        let told = Told {
            command_line: 0x2_0000,
            ramdisk: (0xf00_0000, 77),
            rsdp: 0xe_0000,
            memory: &memory,
        };
        let page = parameters(&kernel, &told);
        let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
        assert_eq!(
            (word(0x228), word(0x218), word(0x21c), word(0x70)),
            (0x2_0000, 0xf00_0000, 77, 0xe_0000)
        );
        assert_eq!((page[0x210], page[0x1e8], word(0x202)), (0xff, 2, 0xcccc_cccc));
        assert_eq!((word(0x2d0 + 8), word(0x2d0 + 16)), (0x9_fc00, 1));
        assert_eq!((word(0x2e4), word(0x2e4 + 8), word(0x2e4 + 16)), (0xe_0000, 0x2_0000, 2));
    }

    #[test]
    fn more_regions_than_fit_are_not_told() {
        let kernel = BzImage {
            header: &[],
            contents: &[],
            address: 0,
            size: 0,
            initrd_max: 0,
            command_line_max: 0,
        };
        let memory = [(0, 1, Kind::AcpiTables); 200];
        let told = Told { command_line: 0, ramdisk: (0, 0), rsdp: 0, memory: &memory };
        assert_eq!(parameters(&kernel, &told)[0x1e8], 128);
    }
}
