//! `ModRM`, SIB and displacement (AMD APM volume 3, 1.4 and 1.7; Intel SDM volume 2, 2.1.3 to 2.1.5 and 2.2.1).

use crate::bytes::Bytes;
use crate::operand::{Base, Memory, Segment, Width};
use crate::prefixes::Prefixes;
use crate::{Mode, Undecoded};

const BP: u8 = 5;
const SP: u8 = 4;
/// The base and the index of each `r/m` of 16 bits: BX, BP, SI and DI.
const PAIRS: [(Option<u8>, Option<u8>); 8] = [
    (Some(3), Some(6)),
    (Some(3), Some(7)),
    (Some(BP), Some(6)),
    (Some(BP), Some(7)),
    (Some(6), None),
    (Some(7), None),
    (Some(BP), None),
    (Some(3), None),
];

/// The byte behind the opcode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModRm(u8);

impl ModRm {
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Result<Self, Undecoded> {
        bytes.next().map(Self)
    }

    const fn mode(self) -> u8 {
        self.0 >> 6
    }

    /// Bits 5 to 3: a register, or a part of the opcode.
    pub(crate) const fn reg(self) -> u8 {
        self.0 >> 3 & 7
    }

    pub(crate) const fn rm(self) -> u8 {
        self.0 & 7
    }

    /// All of it, where it is the third byte of an opcode.
    pub(crate) const fn byte(self) -> u8 {
        self.0
    }

    pub(crate) const fn is_memory(self) -> bool {
        self.mode() != 3
    }

    /// The operand in memory that it names. One that names a register is no device's.
    pub(crate) fn memory(
        self,
        prefixes: Prefixes,
        bytes: &mut Bytes<'_>,
    ) -> Result<Memory, Undecoded> {
        if !self.is_memory() {
            return Err(Undecoded::Other);
        }
        let width = prefixes.address_width();
        if width == Width::Word {
            self.pair(prefixes, bytes)
        } else {
            self.sum(prefixes, width, bytes)
        }
    }

    /// Of 16 bits.
    fn pair(self, prefixes: Prefixes, bytes: &mut Bytes<'_>) -> Result<Memory, Undecoded> {
        let (base, index) = match (self.mode(), self.rm()) {
            (0, 6) => (None, None),
            (_, rm) => PAIRS[usize::from(rm)],
        };
        let displacement = match self.mode() {
            0 if base.is_some() => 0,
            1 => bytes.signed(1)?,
            _ => bytes.signed(2)?,
        };
        Ok(Memory {
            segment: segment(prefixes, base),
            base: base.map(Base::Register),
            index: index.map(|index| (index, 1)),
            displacement,
            width: Width::Word,
        })
    }

    /// Of 32 and 64 bits.
    fn sum(
        self,
        prefixes: Prefixes,
        width: Width,
        bytes: &mut Bytes<'_>,
    ) -> Result<Memory, Undecoded> {
        let (base, index) = if self.rm() == SP {
            let sib = bytes.next()?;
            let index = prefixes.extended(sib >> 3 & 7, 1);
            (sib & 7, (index != SP).then_some((index, 1 << (sib >> 6))))
        } else {
            (self.rm(), None)
        };
        // Without a displacement, RBP and R13 are no bases.
        let is_absent = self.mode() == 0 && base == BP;
        let displacement = match self.mode() {
            0 if !is_absent => 0,
            1 => bytes.signed(1)?,
            _ => bytes.signed(4)?,
        };
        let number = prefixes.extended(base, 0);
        let base = match is_absent {
            false => Some(Base::Register(number)),
            true if self.rm() == BP && prefixes.mode() == Mode::Bits64 => {
                Some(Base::NextInstruction)
            }
            true => None,
        };
        Ok(Memory {
            segment: segment(prefixes, (!is_absent).then_some(number)),
            base,
            index,
            displacement,
            width,
        })
    }
}

/// An address that is a whole part of the instruction.
pub(crate) fn whole(prefixes: Prefixes, bytes: &mut Bytes<'_>) -> Result<Memory, Undecoded> {
    let width = prefixes.address_width();
    let displacement = bytes.unsigned(width.bytes())?.cast_signed();
    let segment = segment(prefixes, None);
    Ok(Memory { segment, base: None, index: None, displacement, width })
}

/// The segment of an address with this base.
pub(crate) fn segment(prefixes: Prefixes, base: Option<u8>) -> Segment {
    prefixes.segment.unwrap_or(match base {
        Some(SP | BP) => Segment::Ss,
        _ => Segment::Ds,
    })
}
