//! Opcodes of two and three bytes, the first of which is 0x0f (AMD APM volume 3, tables; Intel SDM volume 2,
//! tables ).

use crate::Undecoded;
use crate::bytes::Bytes;
use crate::modrm::ModRm;
use crate::one_byte::load;
use crate::operand::{Register, StatusWord, Width};
use crate::operation::{Operation, System};
use crate::prefixes::Prefixes;

/// The operation of what follows 0x0f.
pub(crate) fn decode(
    prefixes: Prefixes,
    bytes: &mut Bytes<'_>,
    into: &mut Operation,
) -> Result<(), Undecoded> {
    let opcode = bytes.next()?;
    let to = prefixes.operand_width();
    let system = match opcode {
        0x01 => privileged(prefixes, bytes)?,
        0x06 => System::Clts,
        0x08 => System::Invd,
        0x09 if prefixes.repeat == Some(0xf3) => System::Wbnoinvd,
        0x09 => System::Wbinvd,
        0x20..=0x23 => moves(opcode, prefixes, bytes)?,
        0x30 => System::Wrmsr,
        0x31 => System::Rdtsc,
        0x32 => System::Rdmsr,
        0x33 => System::Rdpmc,
        0xa2 => System::Cpuid,
        0xb6 | 0xb7 | 0xbe | 0xbf => {
            let width = if opcode & 1 == 0 { Width::Byte } else { Width::Word };
            return load(prefixes, bytes, width, to, opcode & 8 != 0, into);
        }
        _ => return Err(Undecoded::Other),
    };
    *into = Operation::System(system);
    Ok(())
}

/// What follows 0x0f 0x01. With the prefixes that choose an instruction, most of these are others.
fn privileged(prefixes: Prefixes, bytes: &mut Bytes<'_>) -> Result<System, Undecoded> {
    let modrm = ModRm::read(bytes)?;
    if modrm.is_memory() {
        return match modrm.reg() {
            4 => Ok(System::Smsw(StatusWord::Memory(modrm.memory(prefixes, bytes)?))),
            6 => Ok(System::Lmsw(StatusWord::Memory(modrm.memory(prefixes, bytes)?))),
            7 => Ok(System::Invlpg(modrm.memory(prefixes, bytes)?)),
            _ => Err(Undecoded::Other),
        };
    }
    let register = Register { number: prefixes.extended(modrm.rm(), 0), second_byte: false };
    match modrm.reg() {
        4 => {
            let width = prefixes.operand_width();
            return Ok(System::Smsw(StatusWord::Register(register, width)));
        }
        6 => return Ok(System::Lmsw(StatusWord::Register(register, Width::Word))),
        _ => {}
    }
    let repeats = prefixes.repeat.is_some();
    match modrm.byte() {
        0xd9 if !repeats => Ok(System::Vmmcall),
        0xf9 => Ok(System::Rdtscp),
        _ if repeats || prefixes.operand => Err(Undecoded::Other),
        0xc1 => Ok(System::Vmcall),
        0xc8 => Ok(System::Monitor),
        0xc9 => Ok(System::Mwait),
        0xd1 => Ok(System::Xsetbv),
        _ => Err(Undecoded::Other),
    }
}

/// `mov` to and from control and debug registers, for which `ModRM` names registers in any mode. With `lock`, CR0 is CR8
/// (AMD APM volume 3, `MOV CRn`).
fn moves(opcode: u8, prefixes: Prefixes, bytes: &mut Bytes<'_>) -> Result<System, Undecoded> {
    let modrm = ModRm::read(bytes)?;
    let number = prefixes.extended(modrm.reg(), 2);
    let register = Register { number: prefixes.extended(modrm.rm(), 0), second_byte: false };
    let is_control = opcode & 1 == 0;
    let number = match number {
        0 if is_control && prefixes.lock => 8,
        0 | 2 | 3 | 4 | 8 if is_control && !prefixes.lock => number,
        0..8 if !is_control && !prefixes.lock => number,
        _ => return Err(Undecoded::Other),
    };
    Ok(match opcode {
        0x20 => System::ReadControl(number, register),
        0x21 => System::ReadDebug(number, register),
        0x22 => System::WriteControl(number, register),
        _ => System::WriteDebug(number, register),
    })
}
