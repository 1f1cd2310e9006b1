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
            Self::Unknown => "the kernel is not an arm64 Linux Image",
        })
    }
}

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
    }
}
