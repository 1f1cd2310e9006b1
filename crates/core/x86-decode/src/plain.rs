//! The instructions by which most guests access devices, in few steps: `mov` of 32 and 64 bits between a register and memory,
//! in 64 bits, with no prefix but REX. What is in memory is at a register and a displacement, or at a displacement alone.
//! Anything else is decoded byte by byte, and is the same where both can.

use crate::operand::{Base, Memory, Register, Segment, Source, Width};
use crate::operation::Operation;

/// From a register to memory; from memory to a register it is 2 more.
const MOV: u8 = 0x89;
const BP: u8 = 5;
/// The SIB byte of a displacement without a base and without an index.
const NOTHING: u8 = 0x25;

/// Whether it is one of those, of which at most 8 bytes are looked at; how many bytes it has.
#[inline]
pub(crate) fn decode(bytes: &[u8], into: &mut Operation) -> Option<u8> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let (rex, word, before) =
        if word & 0xf0 == 0x40 { (word as u8 & 0xf, word >> 8, 1) } else { (0, word, 0) };
    let (opcode, modrm) = (word as u8, (word >> 8) as u8);
    if opcode | 2 != MOV | 2 {
        return None;
    }
    let (base, displacement, length) = match (modrm >> 6, modrm & 7) {
        // Of this sum, REX has an index.
        (0, 4) if (word >> 16) as u8 == NOTHING && rex & 2 == 0 => {
            (None, i64::from((word >> 24) as i32), 7)
        }
        (3, _) | (_, 4) | (0, BP) => return None,
        (0, base) => (Some(base), 0, 2),
        (1, base) => (Some(base), i64::from((word >> 16) as i8), 3),
        (_, base) => (Some(base), i64::from((word >> 16) as i32), 6),
    };
    let base = base.map(|base| base | rex << 3 & 8);
    let memory = Memory {
        segment: if base == Some(BP) { Segment::Ss } else { Segment::Ds },
        base: base.map(Base::Register),
        index: None,
        displacement,
        width: Width::Qword,
    };
    let width = if rex & 8 == 0 { Width::Dword } else { Width::Qword };
    let register = Register { number: modrm >> 3 & 7 | rex << 1 & 8, second_byte: false };
    *into = if opcode == MOV {
        Operation::Store { memory, width, source: Source::Register(register) }
    } else {
        Operation::Load { memory, width, register, to: width, signed: false }
    };
    Some(before + length)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::{Mode, System, decode_by_bytes};

    /// All first bytes of an instruction without and with REX, and displacements of both signs.
    #[test]
    fn what_is_decoded_in_few_steps_is_what_is_decoded_byte_by_byte() {
        let mut count = 0;
        for rex in [None, Some(0x40), Some(0x41), Some(0x42), Some(0x44), Some(0x48), Some(0x4f)] {
            for opcode in 0..=u8::MAX {
                for modrm in 0..=u8::MAX {
                    for sib in [NOTHING, 0x65] {
                        let mut bytes = std::vec::Vec::from_iter(rex);
                        bytes.extend([opcode, modrm, sib, 0x80, 0x7f, 0xfe, 0x91, 0x12]);
                        let nothing = Operation::System(System::Pause);
                        let (mut few, mut each) = (nothing, nothing);
                        let Some(length) = decode(&bytes, &mut few) else { continue };
                        let by_bytes = decode_by_bytes(Mode::Bits64, &bytes, &mut each);
                        assert_eq!((Ok(length), few), (by_bytes, each), "{bytes:x?}");
                        assert_eq!(decode(&bytes[..7], &mut few), None);
                        count += 1;
                    }
                }
            }
        }
        // Of two opcodes and 8 registers, 20 places each, and a displacement alone where REX makes no index of it. Where the
        // opcode is REX, the next byte is the opcode.
        assert_eq!(count, 2 * 8 * (7 * 20 * 2 + 5) + 16 * 2);
    }
}
