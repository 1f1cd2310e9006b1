//! Opcodes of one byte (AMD APM volume 3, table A-1; Intel SDM volume 2, table A-2).

use crate::bytes::Bytes;
use crate::modrm::{self, ModRm};
use crate::operand::{Port, RAX, Source, Width};
use crate::operation::{Arithmetic, Operation, Strings, System};
use crate::prefixes::Prefixes;
use crate::{Mode, Undecoded};

/// The operation of an opcode, and of what follows it.
pub(crate) fn decode(
    opcode: u8,
    prefixes: Prefixes,
    bytes: &mut Bytes<'_>,
    into: &mut Operation,
) -> Result<(), Undecoded> {
    let width = prefixes.width(opcode);
    let port_width = prefixes.port_width(opcode);
    match opcode {
        // `add` to `cmp`: six opcodes each, of which two have a memory first, and two a register.
        0x00..=0x3f if opcode & 7 < 4 => {
            let modrm = ModRm::read(bytes)?;
            let memory = modrm.memory(prefixes, bytes)?;
            let register = prefixes.register(prefixes.extended(modrm.reg(), 2), width);
            let arithmetic = arithmetic(opcode >> 3);
            if opcode & 2 == 0 {
                let source = Source::Register(register);
                *into = Operation::ToMemory { arithmetic, memory, width, source };
            } else {
                *into = Operation::ToRegister { arithmetic, register, width, memory };
            }
        }
        0x63 if prefixes.mode() == Mode::Bits64 && prefixes.is_wide() => {
            load(prefixes, bytes, Width::Dword, Width::Qword, true, into)?;
        }
        0x6c | 0x6d => *into = Operation::InString(strings(prefixes, port_width)),
        0x6e | 0x6f => {
            let segment = modrm::segment(prefixes, None);
            *into = Operation::OutString(strings(prefixes, port_width), segment);
        }
        0x80..=0x83 if opcode != 0x82 || prefixes.mode() != Mode::Bits64 => {
            let modrm = ModRm::read(bytes)?;
            let memory = modrm.memory(prefixes, bytes)?;
            let count = if opcode == 0x81 { width } else { Width::Byte };
            let source = immediate(bytes, count, width)?;
            let arithmetic = arithmetic(modrm.reg());
            *into = Operation::ToMemory { arithmetic, memory, width, source };
        }
        0x84..=0x89 => {
            let modrm = ModRm::read(bytes)?;
            let memory = modrm.memory(prefixes, bytes)?;
            let register = prefixes.register(prefixes.extended(modrm.reg(), 2), width);
            let source = Source::Register(register);
            match opcode {
                0x84 | 0x85 => {
                    let arithmetic = Arithmetic::Test;
                    *into = Operation::ToMemory { arithmetic, memory, width, source };
                }
                0x86 | 0x87 => *into = Operation::Exchange { memory, width, register },
                _ => *into = Operation::Store { memory, width, source },
            }
        }
        0x8a | 0x8b => load(prefixes, bytes, width, width, false, into)?,
        // With REX.B it is `xchg` of R8 and RAX, also behind 0xf3 (Intel SDM volume 2, table A-2).
        0x90 if prefixes.repeat == Some(0xf3) && prefixes.extended(0, 0) == 0 => {
            *into = Operation::System(System::Pause);
        }
        0xa0 | 0xa1 => {
            let memory = modrm::whole(prefixes, bytes)?;
            *into = Operation::Load { memory, width, register: RAX, to: width, signed: false };
        }
        0xa2 | 0xa3 => {
            let memory = modrm::whole(prefixes, bytes)?;
            *into = Operation::Store { memory, width, source: Source::Register(RAX) };
        }
        0xa4 | 0xa5 => {
            let segment = modrm::segment(prefixes, None);
            *into = Operation::MoveString(strings(prefixes, width), segment);
        }
        0xaa | 0xab => *into = Operation::StoreString(strings(prefixes, width)),
        0xac | 0xad => {
            let segment = modrm::segment(prefixes, None);
            *into = Operation::LoadString(strings(prefixes, width), segment);
        }
        0xc6 | 0xc7 => {
            let memory = first_of_group(prefixes, bytes)?;
            let source = immediate(bytes, width, width)?;
            *into = Operation::Store { memory, width, source };
        }
        0xe4 | 0xe5 => *into = Operation::In(port_width, Port::Immediate(bytes.next()?)),
        0xe6 | 0xe7 => *into = Operation::Out(port_width, Port::Immediate(bytes.next()?)),
        0xec | 0xed => *into = Operation::In(port_width, Port::Dx),
        0xee | 0xef => *into = Operation::Out(port_width, Port::Dx),
        0xf4 => *into = Operation::System(System::Hlt),
        0xf6 | 0xf7 => {
            let memory = first_of_group(prefixes, bytes)?;
            let source = immediate(bytes, width, width)?;
            let arithmetic = Arithmetic::Test;
            *into = Operation::ToMemory { arithmetic, memory, width, source };
        }
        _ => return Err(Undecoded::Other),
    }
    Ok(())
}

const fn arithmetic(number: u8) -> Arithmetic {
    match number & 7 {
        0 => Arithmetic::Add,
        1 => Arithmetic::Or,
        2 => Arithmetic::Adc,
        3 => Arithmetic::Sbb,
        4 => Arithmetic::And,
        5 => Arithmetic::Sub,
        6 => Arithmetic::Xor,
        _ => Arithmetic::Cmp,
    }
}

/// A load from the memory that `ModRM` names into the register that it names.
pub(crate) fn load(
    prefixes: Prefixes,
    bytes: &mut Bytes<'_>,
    width: Width,
    to: Width,
    signed: bool,
    into: &mut Operation,
) -> Result<(), Undecoded> {
    let modrm = ModRm::read(bytes)?;
    let memory = modrm.memory(prefixes, bytes)?;
    let register = prefixes.register(prefixes.extended(modrm.reg(), 2), to);
    *into = Operation::Load { memory, width, register, to, signed };
    Ok(())
}

/// The memory of an instruction that is the first of the eight that share its opcode.
fn first_of_group(prefixes: Prefixes, bytes: &mut Bytes<'_>) -> Result<crate::Memory, Undecoded> {
    let modrm = ModRm::read(bytes)?;
    if modrm.reg() != 0 {
        return Err(Undecoded::Other);
    }
    modrm.memory(prefixes, bytes)
}

/// An immediate of `count`, or four, bytes, for an operation of this width.
fn immediate(bytes: &mut Bytes<'_>, count: Width, width: Width) -> Result<Source, Undecoded> {
    let value = bytes.signed(count.bytes().min(4))?;
    Ok(Source::Immediate(value.cast_unsigned() & width.mask()))
}

fn strings(prefixes: Prefixes, width: Width) -> Strings {
    let addresses = prefixes.address_width();
    Strings { width, addresses, repeats: prefixes.repeat.is_some() }
}
