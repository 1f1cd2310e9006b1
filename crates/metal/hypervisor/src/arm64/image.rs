//! The header of an unpacked kernel, an arm64 Linux Image (`Documentation/arch/arm64/booting.rst`).

/// What the header says of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The distance of its start from a multiple of 2 MiB.
    pub offset: u64,
    /// The bytes of memory that it takes from there on, including what is not in the file.
    pub size: u64,
}

/// Why a module is no kernel that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKernel {
    /// It is an EFI program with a kernel that something else than gzip has packed.
    Packed,
    /// The packed kernel is incomplete, or larger than its header says.
    Damaged,
    /// The kernel ends before the sections that its header names.
    Cut,
    /// It is something else.
    Unknown,
}

impl core::fmt::Display for NoKernel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Packed => {
                "the kernel is packed in an EFI program (zboot) by something else than gzip: unpack it first"
            }
            Self::Damaged => "the packed kernel is damaged: it is cut off, or larger than its header says",
            Self::Cut => "the kernel is cut off: it ends before its header says",
            Self::Unknown => "the kernel is not an arm64 Linux Image",
        })
    }
}

/// The places of the PE/COFF header of an Image that is an EFI program, too (UEFI Specification 2.10, 2.1.1; PE Format,
/// "COFF File Header" and "Section Table"): where its address is, and then, from there on, the number of sections, the
/// bytes of the optional header, and the first byte behind the two headers.
const PE_AT: usize = 0x3c;
const SECTIONS: usize = 6;
const OPTIONAL_BYTES: usize = 20;
const HEADERS: usize = 24;
/// The bytes of a section's header, and where in it the bytes and the place of the section are.
const SECTION: usize = 40;
const RAW_BYTES: usize = 16;
const RAW_AT: usize = 20;

/// The most sections: what loaders of such programs take (PE Format, "COFF File Header"). Linux has three.
const MOST_SECTIONS: usize = 96;

const MAGIC: &[u8] = b"ARM\x64";
const MAGIC_AT: usize = 56;
/// What kernels before 3.17 have, whose header does not say how large they are.
const OLD_OFFSET: u64 = 0x8_0000;

impl Kernel {
    /// Reads the header of `image`, which is not packed ([`contents`](crate::contents)).
    ///
    /// # Errors
    ///
    /// [`NoKernel`].
    pub fn read(image: &[u8]) -> Result<Self, NoKernel> {
        if image.get(MAGIC_AT..MAGIC_AT + 4) != Some(MAGIC) {
            return Err(NoKernel::Unknown);
        }
        let word = |at: usize| image.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let (offset, size) = (word(8).unwrap_or(0), word(16).unwrap_or(0));
        let length = image.len() as u64;
        if size == 0 {
            // Twice the file has room for what is not in it.
            return Ok(Self { offset: OLD_OFFSET, size: 2 * length });
        }
        // No kernel asks for more than this, and nothing below overflows by it.
        if offset >= 1 << 30 || size >= 1 << 40 {
            return Err(NoKernel::Unknown);
        }
        Ok(Self { offset, size: size.max(length) })
    }
}

/// Checks that an unpacked `image` is not cut off, as far as that can be known. The header of the Image itself does not
/// say how long the file is: its size includes memory that is not in the file. Two other things do:
///
/// - An Image that is an EFI program has a PE/COFF header, which names its sections. All of them are to be there.
/// - One of the first two instructions of any Image branches to the kernel's entry, which is to be in the file. If the
///   Image is no EFI program and is cut behind that, nothing says so, and it passes.
///
/// # Errors
///
/// [`NoKernel::Cut`]; or [`NoKernel::Unknown`], if it has more sections than a program may have.
pub fn check_whole(image: &[u8]) -> Result<(), NoKernel> {
    let is_there = |entry: u64| entry.checked_add(4).is_some_and(|end| end <= image.len() as u64);
    if !entry(image).is_none_or(is_there) {
        return Err(NoKernel::Cut);
    }
    if !image.starts_with(b"MZ") {
        return Ok(());
    }
    let bytes = |at: usize, count: usize| {
        let bytes = image.get(at..at.checked_add(count)?)?;
        Some(bytes.iter().rev().fold(0_usize, |number, &byte| number << 8 | usize::from(byte)))
    };
    let last = || {
        let header = bytes(PE_AT, 4)?;
        if header == 0 || image.get(header..header.checked_add(4)?)? != b"PE\0\0" {
            return Some(Ok(0));
        }
        let count = bytes(header + SECTIONS, 2)?;
        if count > MOST_SECTIONS {
            return Some(Err(NoKernel::Unknown));
        }
        let first = header + HEADERS + bytes(header + OPTIONAL_BYTES, 2)?;
        let end = |section: usize| {
            let at = first + section * SECTION;
            bytes(at + RAW_AT, 4)?.checked_add(bytes(at + RAW_BYTES, 4)?)
        };
        (0..count).try_fold(0, |last: usize, section| Some(last.max(end(section)?))).map(Ok)
    };
    match last().transpose()? {
        Some(end) if end <= image.len() => Ok(()),
        _ => Err(NoKernel::Cut),
    }
}

/// Where the first branch of `image` leads, if one of the first two instructions is one: from the start of the image on;
/// beyond any file, where it leads to before the start.
fn entry(image: &[u8]) -> Option<u64> {
    /// The bits of `B`, without those of its distance.
    const BRANCH: u32 = 0b00_0101;
    let branch = |at: usize| {
        let word = u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?);
        // Of 26 bits, with a sign, in words.
        let distance = i64::from((word << 6).cast_signed() >> 6) * 4;
        (word >> 26 == BRANCH).then_some((at as u64).wrapping_add_signed(distance))
    };
    branch(0).or_else(|| branch(4))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn header(offset: u64, size: u64) -> Vec<u8> {
        let mut image = std::vec![0; 64];
        image[8..16].copy_from_slice(&offset.to_le_bytes());
        image[16..24].copy_from_slice(&size.to_le_bytes());
        image[56..60].copy_from_slice(MAGIC);
        image
    }

    #[test]
    fn a_kernel_says_where_it_begins_and_how_large_it_is() {
        assert_eq!(Kernel::read(&header(0, 0x10_0000)), Ok(Kernel { offset: 0, size: 0x10_0000 }));
        assert_eq!(Kernel::read(&header(0, 0)), Ok(Kernel { offset: OLD_OFFSET, size: 128 }));
    }

    /// An Image that is an EFI program with two sections, the last of which ends at `end`.
    fn efi_program(end: u32) -> Vec<u8> {
        let mut image = header(0, 0x10_0000);
        image.resize(0x40 + HEADERS + 8 + 2 * SECTION, 0);
        image[..2].copy_from_slice(b"MZ");
        image[PE_AT] = 0x40;
        image[0x40..0x44].copy_from_slice(b"PE\0\0");
        (image[0x40 + SECTIONS], image[0x40 + OPTIONAL_BYTES]) = (2, 8);
        let sections = 0x40 + HEADERS + 8;
        for (number, (at, bytes)) in
            [(0x1000_u32, 0x800), (0x2000, end - 0x2000)].iter().enumerate()
        {
            let section = sections + number * SECTION;
            image[section + RAW_AT..][..4].copy_from_slice(&at.to_le_bytes());
            image[section + RAW_BYTES..][..4].copy_from_slice(&u32::to_le_bytes(*bytes));
        }
        image.resize(end as usize, 0);
        image
    }

    #[test]
    fn a_kernel_that_is_cut_off_is_refused_wherever_it_is_cut() {
        let image = efi_program(0x2345);
        assert_eq!(check_whole(&image), Ok(()));
        for length in 64..image.len() {
            assert_eq!(check_whole(&image[..length]), Err(NoKernel::Cut), "{length}");
        }
        // No EFI program, and a header of DOS alone: nothing says how long they are.
        assert_eq!(check_whole(&header(0, 0x10_0000)), Ok(()));
        let mut dos = efi_program(0x2345);
        dos[PE_AT] = 0;
        assert_eq!(check_whole(&dos), Ok(()));
    }

    #[test]
    fn a_program_of_more_sections_than_loaders_take_is_no_kernel() {
        let mut image = efi_program(0x1_0000);
        for (count, expected) in
            [(96, Ok(())), (97, Err(NoKernel::Unknown)), (255, Err(NoKernel::Unknown))]
        {
            image[0x40 + SECTIONS] = count;
            assert_eq!(check_whole(&image), expected, "{count}");
        }
    }

    #[test]
    fn a_kernel_that_is_cut_off_before_its_entry_is_refused() {
        // `B` to 0x1000, as the first instruction, or behind that which is "MZ" in an EFI program.
        for (at, branch) in [(0, 0x1400_0400_u32), (4, 0x1400_03ff)] {
            let mut image = header(0, 0x10_0000);
            image[at..at + 4].copy_from_slice(&branch.to_le_bytes());
            image.resize(0x2000, 0);
            assert_eq!(check_whole(&image), Ok(()));
            assert_eq!(check_whole(&image[..0x1004]), Ok(()), "behind its entry nothing is known");
            for length in [64, 0x1000, 0x1003] {
                assert_eq!(check_whole(&image[..length]), Err(NoKernel::Cut), "{length}");
            }
        }
        let mut before = header(0, 0x10_0000);
        before[..4].copy_from_slice(&0x17ff_ffff_u32.to_le_bytes());
        assert_eq!(check_whole(&before), Err(NoKernel::Cut), "an entry before the image is none");
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        assert_eq!(Kernel::read(b"#!/bin/sh"), Err(NoKernel::Unknown));
        assert_eq!(Kernel::read(&header(0, u64::MAX)), Err(NoKernel::Unknown));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            if let Ok(kernel) = Kernel::read(&bytes) {
                prop_assert!(kernel.size >= bytes.len() as u64 && kernel.offset.checked_add(kernel.size).is_some());
            }
        }

        #[test]
        fn a_header_of_any_bytes_is_whole_or_cut_off(
            changes in prop::collection::vec((0..0x200_usize, any::<u8>()), 0..16),
            length in 0..0x2345_usize,
        ) {
            let mut image = efi_program(0x2345);
            for (at, byte) in changes {
                image[at] = byte;
            }
            image.truncate(length);
            let _ = check_whole(&image);
        }
    }
}
