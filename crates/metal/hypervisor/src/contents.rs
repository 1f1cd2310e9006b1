//! The contents of a kernel's module: an Image that is not packed, or one packed by gzip (RFC 1952), alone or in an EFI
//! program (zboot, `drivers/firmware/efi/libstub/zboot-header.S` in Linux).
//!
//! A packed kernel is unpacked piece by piece, through a window of 32 KiB, to its final place. Each piece takes bounded
//! work. All pieces together have at most as many bytes as the kernel's own header says, so that a module takes no more
//! memory.

use alloc::boxed::Box;
use alloc::vec::Vec;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress_with_limit, inflate_flags};

use crate::arm64::image::{Kernel, NoKernel, check_whole};

/// How far deflate looks back at most.
const WINDOW: usize = 32 << 10;
/// The most bytes of a piece.
const PIECE: usize = 1 << 10;
/// How many packed bytes are read for one piece: they may be tables of codes, again and again, of 11 bytes each.
const BITE: usize = 32;
/// The most bytes of a name or a comment in the header of a gzip member: as many as a path may have in Linux.
const MOST_TEXT: usize = 4096;
/// The bytes that hold a kernel's header.
const HEADER: usize = 64;

/// The contents of a module, as pieces.
pub enum Contents<'a> {
    /// It is the kernel itself.
    Plain(Option<&'a [u8]>),
    /// It is packed.
    Packed(Box<Packed<'a>>),
}

impl<'a> Contents<'a> {
    /// Reads the header of a module's kernel. Returns it, and the contents. `look` is called between pieces of bounded
    /// work: any number of them may come before the first byte.
    ///
    /// # Errors
    ///
    /// [`NoKernel`].
    pub fn open(module: &'a [u8], look: impl Fn()) -> Result<(Kernel, Self), NoKernel> {
        let Some(packed) = packed(module)? else {
            let kernel = Kernel::read(module)?;
            check_whole(module)?;
            return Ok((kernel, Self::Plain(Some(module))));
        };
        let mut packed = Box::new(Packed::new(packed)?);
        while packed.total < HEADER as u64 && packed.step()? {
            look();
        }
        let header = packed.filled.min(HEADER);
        let kernel = Kernel::read(&packed.window[..header])?;
        packed.most = kernel.size;
        if packed.total > packed.most {
            return Err(NoKernel::Damaged);
        }
        Ok((kernel, Self::Packed(packed)))
    }

    /// The next piece, which may be empty; `None` after the last one.
    ///
    /// # Errors
    ///
    /// [`NoKernel::Damaged`], when the packed kernel is incomplete, or larger than its header says.
    pub fn next_piece(&mut self) -> Result<Option<&[u8]>, NoKernel> {
        match self {
            Self::Plain(bytes) => Ok(bytes.take()),
            Self::Packed(packed) => packed.next(),
        }
    }
}

/// The bytes of a module that gzip has packed, if there are any.
fn packed(module: &[u8]) -> Result<Option<&[u8]>, NoKernel> {
    if module.starts_with(&[0x1f, 0x8b]) {
        return Ok(Some(module));
    }
    if !module.starts_with(b"MZ") || module.get(4..8) != Some(b"zimg") {
        return Ok(None);
    }
    if module.get(24..29) != Some(b"gzip\0") {
        return Err(NoKernel::Packed);
    }
    let word = |at: usize| {
        module.get(at..at + 4)?.try_into().ok().map(|bytes| u32::from_le_bytes(bytes) as usize)
    };
    let place = word(8).zip(word(12));
    let payload = place.and_then(|(start, bytes)| module.get(start..start.checked_add(bytes)?));
    payload.map(Some).ok_or(NoKernel::Damaged)
}

/// A kernel that is being unpacked.
pub struct Packed<'a> {
    /// What is still packed, and what is behind it.
    rest: &'a [u8],
    state: Box<DecompressorOxide>,
    /// The last 32 KiB, as a ring.
    window: Vec<u8>,
    /// Of this turn.
    filled: usize,
    /// Of that, what was given away.
    given: usize,
    /// Of all turns.
    total: u64,
    /// How much it may be.
    most: u64,
    sum: crc32fast::Hasher,
    /// Everything is unpacked, and is as its sum says.
    is_whole: bool,
}

impl<'a> Packed<'a> {
    fn new(member: &'a [u8]) -> Result<Self, NoKernel> {
        let rest = behind_header(member).ok_or(NoKernel::Damaged)?;
        Ok(Self {
            rest,
            state: Box::default(),
            window: alloc::vec![0; WINDOW],
            filled: 0,
            given: 0,
            total: 0,
            most: WINDOW as u64,
            sum: crc32fast::Hasher::new(),
            is_whole: false,
        })
    }

    fn next(&mut self) -> Result<Option<&[u8]>, NoKernel> {
        if self.given == WINDOW {
            (self.filled, self.given) = (0, 0);
        }
        // The first bytes were unpacked for the header that is in them.
        let was_last = self.filled == self.given && !self.step()?;
        if was_last && self.filled == self.given {
            return Ok(None);
        }
        let before = core::mem::replace(&mut self.given, self.filled);
        Ok(Some(&self.window[before..self.filled]))
    }

    /// Unpacks some, into what is left of this turn. Returns whether there is more to unpack.
    fn step(&mut self) -> Result<bool, NoKernel> {
        if self.is_whole {
            return Ok(false);
        }
        let bite = &self.rest[..self.rest.len().min(BITE)];
        let more =
            if bite.len() < self.rest.len() { inflate_flags::TINFL_FLAG_HAS_MORE_INPUT } else { 0 };
        let (status, taken, given) = decompress_with_limit(
            &mut self.state,
            bite,
            &mut self.window,
            self.filled,
            PIECE,
            more,
        );
        self.rest = &self.rest[taken..];
        self.sum.update(&self.window[self.filled..self.filled + given]);
        self.filled += given;
        self.total += given as u64;
        if self.total > self.most {
            return Err(NoKernel::Damaged);
        }
        match status {
            TINFLStatus::Done => {
                self.is_whole = true;
                self.check().ok_or(NoKernel::Damaged)?;
                Ok(false)
            }
            TINFLStatus::HasMoreOutput => Ok(true),
            TINFLStatus::NeedsMoreInput if taken > 0 || given > 0 => Ok(true),
            _ => Err(NoKernel::Damaged),
        }
    }

    /// What stands behind it: its sum, and its length.
    fn check(&self) -> Option<()> {
        let word =
            |at: usize| Some(u32::from_le_bytes(self.rest.get(at..at + 4)?.try_into().ok()?));
        let is_right = word(0)? == self.sum.clone().finalize() && word(4)? == self.total as u32;
        is_right.then_some(())
    }
}

/// What is behind the header of a gzip member.
fn behind_header(member: &[u8]) -> Option<&[u8]> {
    const SUM: u8 = 1 << 1;
    const EXTRA: u8 = 1 << 2;
    const NAME: u8 = 1 << 3;
    const COMMENT: u8 = 1 << 4;
    const RESERVED: u8 = 0xe0;

    let (header, mut rest) = member.split_at_checked(10)?;
    // Deflate is the only method that there is.
    let [0x1f, 0x8b, 8, flags, ..] = *header else { return None };
    if flags & RESERVED != 0 {
        return None;
    }
    if flags & EXTRA != 0 {
        let (length, behind) = rest.split_at_checked(2)?;
        rest = behind.get(usize::from(u16::from_le_bytes(length.try_into().ok()?))..)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            rest = rest.get(rest.iter().take(MOST_TEXT).position(|&byte| byte == 0)? + 1..)?;
        }
    }
    if flags & SUM != 0 {
        rest = rest.get(2..)?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;
    use std::vec::Vec;

    use flate2::{Compression, GzBuilder};
    use proptest::prelude::*;

    use super::*;

    /// An Image that says that it takes `size` bytes, of which `length` are in the file.
    fn image(size: u64, length: usize) -> Vec<u8> {
        let mut image: Vec<u8> =
            (0..length as u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        image[8..16].copy_from_slice(&0_u64.to_le_bytes());
        image[16..24].copy_from_slice(&size.to_le_bytes());
        image[56..60].copy_from_slice(b"ARM\x64");
        image
    }

    fn gzip(image: &[u8]) -> Vec<u8> {
        let mut packer = GzBuilder::new()
            .filename("Image")
            .comment("a kernel")
            .extra([1, 2, 3])
            .write(Vec::new(), Compression::fast());
        packer.write_all(image).unwrap();
        packer.finish().unwrap()
    }

    fn zboot(kind: &[u8], packed: &[u8]) -> Vec<u8> {
        let mut program = std::vec![0; 512];
        program[..2].copy_from_slice(b"MZ");
        program[4..8].copy_from_slice(b"zimg");
        program[8..12].copy_from_slice(&512_u32.to_le_bytes());
        program[12..16].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        program[24..24 + kind.len()].copy_from_slice(kind);
        program.extend_from_slice(packed);
        program.extend_from_slice(b"code behind it");
        program
    }

    fn unpack(module: &[u8]) -> Result<(Kernel, Vec<u8>), NoKernel> {
        let (kernel, mut contents) = Contents::open(module, || ())?;
        let mut bytes = Vec::new();
        while let Some(piece) = contents.next_piece()? {
            assert!(piece.len() <= PIECE || piece.len() == module.len());
            bytes.extend_from_slice(piece);
        }
        assert_eq!(contents.next_piece().map(|piece| piece.map(<[u8]>::len)), Ok(None));
        Ok((kernel, bytes))
    }

    #[test]
    fn a_kernel_is_the_same_however_it_is_packed() {
        // Around the window's size, and far above.
        for length in [64, WINDOW - 1, WINDOW, WINDOW + 1, 5 * WINDOW, 300_000] {
            let image = image(1 << 20, length);
            let expected = Ok((Kernel { offset: 0, size: 1 << 20 }, image.clone()));
            assert_eq!(unpack(&image), expected, "{length}");
            let packed = gzip(&image);
            assert_eq!(unpack(&packed), expected, "{length}");
            assert_eq!(unpack(&zboot(b"gzip\0", &packed)), expected, "{length}");
        }
    }

    /// Blocks of deflate without a byte may stand before the first byte, however many.
    #[test]
    fn while_a_kernel_has_no_first_byte_yet_the_caller_looks_after_each_bite() {
        const BLOCKS: usize = 100_000;
        let member = gzip(&image(1 << 20, 4096));
        let header = member.len() - behind_header(&member).unwrap().len();
        let empty = [0, 0, 0, 0xff, 0xff].repeat(BLOCKS);
        let packed = [&member[..header], &empty, &member[header..]].concat();
        let looks = Cell::new(0);
        let (_, mut contents) = Contents::open(&packed, || looks.set(looks.get() + 1)).unwrap();
        assert!(looks.get() >= empty.len() / BITE, "{} looks", looks.get());
        let mut unpacked = 0;
        while let Some(piece) = contents.next_piece().unwrap() {
            unpacked += piece.len();
        }
        assert_eq!(unpacked, 4096);
    }

    #[test]
    fn a_name_is_as_long_as_that_of_a_file_or_it_is_none() {
        let named = |length: usize| {
            let mut packer = GzBuilder::new()
                .filename(std::vec![b'a'; length])
                .write(Vec::new(), Compression::fast());
            packer.write_all(&image(1 << 20, 4096)).unwrap();
            unpack(&packer.finish().unwrap()).map(|_| ())
        };
        assert_eq!([named(MOST_TEXT - 1), named(MOST_TEXT)], [Ok(()), Err(NoKernel::Damaged)]);
    }

    #[test]
    fn what_is_packed_otherwise_is_told() {
        let packed = gzip(&image(1 << 20, 4096));
        assert_eq!(unpack(&zboot(b"zstd\0", &packed)).unwrap_err(), NoKernel::Packed);
        assert_eq!(unpack(&zboot(b"gzipped\0", &packed)).unwrap_err(), NoKernel::Packed);
        assert_eq!(unpack(&gzip(b"#!/bin/sh")).unwrap_err(), NoKernel::Unknown);
        assert_eq!(unpack(b"#!/bin/sh").unwrap_err(), NoKernel::Unknown);
        assert_eq!(unpack(b"").unwrap_err(), NoKernel::Unknown);
    }

    #[test]
    fn more_than_the_header_says_is_not_unpacked() {
        let image = image(100_000, 100_001);
        let packed = gzip(&image);
        let (_, mut contents) = Contents::open(&packed, || ()).unwrap();
        let mut unpacked = 0;
        let end = loop {
            match contents.next_piece() {
                Ok(Some(piece)) => unpacked += piece.len(),
                end => break end.map(|_| ()),
            }
        };
        assert_eq!(end, Err(NoKernel::Damaged));
        assert!(unpacked <= 100_000);
        // Not even where all of it is in the first piece.
        assert_eq!(unpack(&gzip(&super::tests::image(64, 65))).unwrap_err(), NoKernel::Damaged);
    }

    #[test]
    fn what_is_cut_off_is_refused_wherever_it_is() {
        let packed = gzip(&image(1 << 20, 40_000));
        for length in (2..packed.len()).step_by(7).chain([packed.len() - 1]) {
            assert_eq!(unpack(&packed[..length]).unwrap_err(), NoKernel::Damaged, "{length}");
        }
        let whole = zboot(b"gzip\0", &packed);
        for length in [8, 23, 28] {
            assert!(unpack(&whole[..length]).is_err());
        }
        for length in [29, 512, 600] {
            assert_eq!(unpack(&whole[..length]).unwrap_err(), NoKernel::Damaged, "{length}");
        }
        let mut far = whole;
        far[8..16].fill(0xff);
        assert_eq!(unpack(&far).unwrap_err(), NoKernel::Damaged);
    }

    #[test]
    fn a_sum_or_a_length_that_is_wrong_is_seen() {
        let packed = gzip(&image(1 << 20, 40_000));
        for at in packed.len() - 8..packed.len() {
            let mut packed = packed.clone();
            packed[at] ^= 1;
            assert_eq!(unpack(&packed).unwrap_err(), NoKernel::Damaged, "{at}");
        }
    }

    proptest! {
        #[test]
        fn bytes_that_are_changed_are_seen_or_do_no_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let image = image(1 << 20, 50_000);
            let mut packed = gzip(&image);
            let length = packed.len();
            for (at, byte) in &changes {
                packed[at.index(length)] = *byte;
            }
            // Only of the file's name and the like is nothing seen.
            if let Ok((_, bytes)) = unpack(&packed) {
                prop_assert!(bytes == image);
            }
        }

        #[test]
        fn any_bytes_are_unpacked_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let member = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0][..], &bytes].concat();
            let _ = unpack(&member);
            let _ = unpack(&zboot(b"gzip\0", &bytes));
        }
    }
}
