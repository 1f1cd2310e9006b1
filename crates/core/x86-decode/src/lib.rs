//! The x86 instructions that exit to a hypervisor, from their bytes: how long they are, and what they do to what.
//!
//! A CPU tells a hypervisor which address an instruction has touched, and not always which instruction it was. The embedder
//! fetches its bytes through the guest's page tables, and has them decoded:
//!
//! ```
//! use mayfly_x86_decode::{Mode, Operation, Source, Undecoded, Width, decode};
//!
//! // mov dword ptr [rax+0xb0], 0: the end of an interrupt.
//! let bytes = [0xc7, 0x80, 0xb0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00];
//! let instruction = decode(Mode::Bits64, &bytes)?;
//! assert_eq!(instruction.length, 10);
//! let Operation::Store { memory, width, source } = instruction.operation else { panic!() };
//! assert_eq!((width, source), (Width::Dword, Source::Immediate(0)));
//! assert_eq!(memory.offset(|_rax| 0xfee0_0000, 0), 0xfee0_00b0);
//!
//! // At the end of a page the rest is on the next.
//! assert_eq!(decode(Mode::Bits64, &bytes[..7]), Err(Undecoded::Truncated));
//! // Any other instruction is said to be so, whatever it does: inc dword ptr [rax].
//! assert_eq!(decode(Mode::Bits64, &[0xff, 0x00]), Err(Undecoded::Other));
//! # Ok::<(), Undecoded>(())
//! ```
//!
//! The guest may have changed the bytes since the CPU has fetched them. So an embedder does what the bytes say only as far
//! as it agrees with the exit: the address, and whether it was a write. It never trusts a length or an operand further than
//! the guest itself, whose registers and whose instruction pointer they are.
//!
//! At most 15 bytes are looked at, each once.

#![no_std]
#![forbid(unsafe_code)]

mod bytes;
mod modrm;
mod one_byte;
mod operand;
mod operation;
mod plain;
mod prefixes;
mod two_bytes;

use bytes::Bytes;
pub use operand::{Base, Memory, Port, RAX, Register, Segment, Source, StatusWord, Width};
pub use operation::{Arithmetic, Instruction, Operation, Strings, System};
use prefixes::Prefixes;

/// How a CPU reads instructions: by the code segment's descriptor, and `EFER.LMA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Real mode, virtual 8086 mode, and code segments of 16 bits (`D` is clear).
    Bits16,
    /// Code segments of 32 bits (`D` is set).
    Bits32,
    /// Code segments of 64 bits (`L` is set, in long mode).
    Bits64,
}

/// Why there is no instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecoded {
    /// The bytes are the beginning of an instruction, which goes on behind them.
    #[error("the instruction goes on behind the bytes that are there")]
    Truncated,
    /// There are more than 15 bytes. A CPU has a general-protection fault.
    #[error("the instruction has more than 15 bytes")]
    TooLong,
    /// It is another instruction than those of [`Operation`], or none. Others may access a device too: `inc`, `bts`,
    /// `cmpxchg` and vector moves do. An embedder that meets one cannot carry it out, and tells its guest's owner.
    #[error("the instruction is none that is decoded")]
    Other,
}

/// The instruction that `bytes` begin with.
///
/// # Errors
///
/// [`Undecoded`] says why there is none.
pub fn decode(mode: Mode, bytes: &[u8]) -> Result<Instruction, Undecoded> {
    let mut operation = Operation::System(System::Pause);
    let length = decode_into(mode, bytes, &mut operation)?;
    Ok(Instruction { length, operation })
}

/// The same, for an exit that is to be answered in few instructions: what it does is written to where the caller keeps it,
/// and copied nowhere. Returns how many bytes it has.
///
/// # Errors
///
/// As [`decode`]. The caller's operation then means nothing.
pub fn decode_into(mode: Mode, bytes: &[u8], into: &mut Operation) -> Result<u8, Undecoded> {
    let plain = if mode == Mode::Bits64 { plain::decode(bytes, into) } else { None };
    plain.map_or_else(|| decode_by_bytes(mode, bytes, into), Ok)
}

/// The same, whatever instruction it is.
fn decode_by_bytes(mode: Mode, bytes: &[u8], into: &mut Operation) -> Result<u8, Undecoded> {
    let mut bytes = Bytes::new(bytes);
    let (prefixes, opcode) = Prefixes::read(mode, &mut bytes)?;
    match opcode {
        0x0f => two_bytes::decode(prefixes, &mut bytes, into)?,
        _ => one_byte::decode(opcode, prefixes, &mut bytes, into)?,
    }
    // An instruction that cannot be locked is invalid with that prefix; that of CR8 is another matter.
    let is_control = |operation: &Operation| {
        matches!(operation, Operation::System(System::ReadControl(..) | System::WriteControl(..)))
    };
    if prefixes.lock && !into.may_be_locked() && !is_control(into) {
        return Err(Undecoded::Other);
    }
    Ok(bytes.read() as u8)
}
