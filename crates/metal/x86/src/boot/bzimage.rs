//! A Linux kernel as distributed: a bzImage (Linux, Documentation/arch/x86/boot.rst).

/// Where the header is in the image, and, later, in the boot parameters.
pub const HEADER: usize = 0x1f1;
/// The first byte behind what any version has of the header.
const HEADER_END: usize = 0x290;

const SECTORS: usize = 0x1f1;
const BOOT_FLAG: usize = 0x1fe;
const JUMP: usize = 0x201;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const LOAD_FLAGS: usize = 0x211;
const INITRD_MAX: usize = 0x22c;
const ALIGNMENT: usize = 0x230;
const RELOCATABLE: usize = 0x234;
const FEATURES: usize = 0x236;
const COMMAND_LINE: usize = 0x238;
const PREFERRED: usize = 0x258;
const INIT_SIZE: usize = 0x260;

const SECTOR: usize = 512;
/// The version from which on all that is read here is there: 2.12, of Linux 3.8.
const LEAST_VERSION: u16 = 0x020c;
/// `LOADED_HIGH`.
const HIGH: u8 = 1;
/// `XLF_KERNEL_64`: the kernel has an entry of 64 bits, at this offset.
const HAS_ENTRY_64: u16 = 1;
const ENTRY_64: u64 = 0x200;
/// A kernel whose memory begins below is in the way of what is there.
const LEAST_ADDRESS: u64 = 0x10_0000;

/// Why an image cannot be booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It ends within its header.
    #[error("the kernel ends after {0} bytes, within its header")]
    Short(usize),
    /// It is something else.
    #[error("the kernel is no bzImage: it lacks the mark \"HdrS\"")]
    Magic,
    /// It is older than what this can start.
    #[error("the kernel has version {0}.{1} of the boot protocol, and 2.12 is needed (Linux 3.8)")]
    Version(u8, u8),
    /// It is loaded below 1 MiB.
    #[error("the kernel is a zImage, which is loaded below 1 MiB")]
    Low,
    /// It has no entry of 64 bits.
    #[error("the kernel has no entry of 64 bits")]
    Bits,
    /// It ends before what its header says.
    #[error("the kernel has been cut: it ends after {has} bytes, and its header says {says}")]
    Cut {
        /// Bytes that there are.
        has: usize,
        /// Bytes that its header says.
        says: usize,
    },
    /// The memory that it wants is not there, or is in the way of something.
    #[error("the kernel wants {size:#x} bytes at {address:#x}, which are not there")]
    Place {
        /// Where.
        address: u64,
        /// How many bytes.
        size: u64,
    },
}

/// An image, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BzImage<'a> {
    /// The header, as it goes into the boot parameters.
    pub header: &'a [u8],
    /// What is loaded.
    pub contents: &'a [u8],
    /// Where.
    pub address: u64,
    /// Bytes that it needs there before it knows its memory.
    pub size: u64,
    /// The highest address of a ramdisk.
    pub initrd_max: u64,
    /// The most bytes of a command line, without its end.
    pub command_line_max: u32,
}

impl<'a> BzImage<'a> {
    /// An image for a guest whose memory ends at `memory`.
    ///
    /// # Errors
    ///
    /// [`Wrong`] says why it cannot be booted.
    pub fn parse(image: &'a [u8], memory: u64) -> Result<Self, Wrong> {
        if image.len() < HEADER_END {
            return Err(Wrong::Short(image.len()));
        }
        let byte = |at: usize| image[at];
        let half = |at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
        let word = |at: usize| u32::from(half(at + 2)) << 16 | u32::from(half(at));
        if half(BOOT_FLAG) != 0xaa55 || image[MAGIC..MAGIC + 4] != *b"HdrS" {
            return Err(Wrong::Magic);
        }
        let version = half(VERSION);
        if version < LEAST_VERSION {
            return Err(Wrong::Version((version >> 8) as u8, version as u8));
        }
        if byte(LOAD_FLAGS) & HIGH == 0 {
            return Err(Wrong::Low);
        }
        if half(FEATURES) & HAS_ENTRY_64 == 0 {
            return Err(Wrong::Bits);
        }
        // Zero means four.
        let sectors = match byte(SECTORS) {
            0 => 4,
            sectors => usize::from(sectors),
        };
        let setup = (sectors + 1) * SECTOR;
        // `syssize` is of 16 bytes, and may be rounded up.
        let says = setup + word(0x1f4) as usize * 16;
        if image.len() + 15 < says || image.len() <= setup + ENTRY_64 as usize {
            return Err(Wrong::Cut { has: image.len(), says });
        }
        let contents = &image[setup..];
        let preferred = u64::from(word(PREFERRED + 4)) << 32 | u64::from(word(PREFERRED));
        let size = u64::from(word(INIT_SIZE)).max(contents.len() as u64);
        let alignment = u64::from(word(ALIGNMENT)).max(1);
        // One that is relocatable is put where it asks for, too: its decompressor goes elsewhere by itself if it has to.
        let address = preferred;
        let is_aligned = byte(RELOCATABLE) == 0 || address.is_multiple_of(alignment);
        let is_there = address >= LEAST_ADDRESS
            && is_aligned
            && address.checked_add(size).is_some_and(|end| end <= memory);
        if !is_there {
            return Err(Wrong::Place { address, size });
        }
        // The jump behind the boot flag says where the header ends.
        let end = (MAGIC + usize::from(byte(JUMP))).clamp(INIT_SIZE + 4, HEADER_END);
        Ok(Self {
            header: &image[HEADER..end],
            contents,
            address,
            size,
            initrd_max: u64::from(word(INITRD_MAX)),
            command_line_max: word(COMMAND_LINE),
        })
    }

    /// Where it is entered.
    pub const fn entry(&self) -> u64 {
        self.address + ENTRY_64
    }

    /// Where a ramdisk of `bytes` bytes goes: as high as can be, on a page of its own. `None` if there is no room for it.
    pub fn ramdisk(&self, bytes: u64, memory: u64) -> Option<u64> {
        let end = memory.min(self.initrd_max.saturating_add(1));
        let start = end.checked_sub(bytes)? & !0xfff;
        (start >= self.address + self.size).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MEMORY: u64 = 256 << 20;

    /// An image with two sectors of set-up, and 8 KiB behind them.
    fn image() -> Vec<u8> {
        let mut image = vec![0; 3 * SECTOR + 8192];
        let mut put = |at: usize, value: &[u8]| image[at..at + value.len()].copy_from_slice(value);
        put(SECTORS, &[2]);
        put(0x1f4, &(8192_u32 / 16).to_le_bytes());
        put(BOOT_FLAG, &[0x55, 0xaa, 0xeb, 0x6a]);
        put(MAGIC, b"HdrS");
        put(VERSION, &[0x0f, 2]);
        put(LOAD_FLAGS, &[HIGH]);
        put(INITRD_MAX, &0x7fff_ffff_u32.to_le_bytes());
        put(ALIGNMENT, &0x20_0000_u32.to_le_bytes());
        put(RELOCATABLE, &[1]);
        put(FEATURES, &[1]);
        put(COMMAND_LINE, &2047_u32.to_le_bytes());
        put(PREFERRED, &0x100_0000_u64.to_le_bytes());
        put(INIT_SIZE, &0x200_0000_u32.to_le_bytes());
        image
    }

    #[test]
    fn an_image_goes_where_it_asks_for() {
        let image = image();
        let kernel = BzImage::parse(&image, MEMORY).unwrap();
        assert_eq!((kernel.address, kernel.entry()), (0x100_0000, 0x100_0200));
        assert_eq!((kernel.size, kernel.contents.len()), (0x200_0000, 8192));
        assert_eq!(kernel.header.len(), 0x26c - HEADER);
        assert_eq!(kernel.ramdisk(5000, MEMORY), Some(MEMORY - 8192));
        assert_eq!(kernel.ramdisk(MEMORY - 0x300_0000, MEMORY), Some(0x300_0000));
        assert_eq!(kernel.ramdisk(MEMORY - 0x2ff_ffff, MEMORY), None);
        assert_eq!(kernel.ramdisk(MEMORY + 1, MEMORY), None);
        assert_eq!(kernel.ramdisk(4096, 4 << 30), Some(0x7fff_f000));
    }

    #[test]
    fn what_is_wrong_with_an_image_is_said() {
        let with = |at: usize, value: &[u8]| {
            let mut image = image();
            image[at..at + value.len()].copy_from_slice(value);
            BzImage::parse(&image, MEMORY).map(|kernel| kernel.address)
        };
        assert_eq!(with(MAGIC, b"HdrT"), Err(Wrong::Magic));
        assert_eq!(with(BOOT_FLAG, &[0]), Err(Wrong::Magic));
        assert_eq!(with(VERSION, &[0x0b]), Err(Wrong::Version(2, 11)));
        assert_eq!(with(LOAD_FLAGS, &[0]), Err(Wrong::Low));
        assert_eq!(with(FEATURES, &[0]), Err(Wrong::Bits));
        let place = |address, size| Err(Wrong::Place { address, size });
        assert_eq!(with(INIT_SIZE, &[0, 0, 0, 16]), place(0x100_0000, 0x1000_0000));
        assert_eq!(with(PREFERRED, &[0; 8]), place(0, 0x200_0000));
        assert_eq!(with(PREFERRED, &[1]), place(0x100_0001, 0x200_0000));
        assert_eq!(with(PREFERRED, &[0xff; 8]), place(u64::MAX, 0x200_0000));
    }

    #[test]
    fn a_cut_image_is_never_booted() {
        let image = image();
        for cut in 0..image.len() - 15 {
            let wrong = BzImage::parse(&image[..cut], MEMORY).unwrap_err();
            assert!(matches!(wrong, Wrong::Short(_) | Wrong::Cut { .. }), "{cut}: {wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_header_says_all_of_it_is_in_memory(
            changes in prop::collection::vec((HEADER..HEADER_END, any::<u8>()), 0..40), cut in 0_usize..12_000, bytes: u64,
        ) {
            let mut image = image();
            for (at, byte) in changes {
                image[at] = byte;
            }
            image.truncate(cut);
            if let Ok(kernel) = BzImage::parse(&image, MEMORY) {
                prop_assert!(kernel.address >= LEAST_ADDRESS && kernel.address + kernel.size <= MEMORY);
                prop_assert!(kernel.contents.len() as u64 <= kernel.size);
                prop_assert!(kernel.header.len() <= HEADER_END - HEADER);
                if let Some(start) = kernel.ramdisk(bytes, MEMORY) {
                    prop_assert!(start >= kernel.address + kernel.size && start + bytes <= MEMORY);
                }
            }
        }
    }
}
