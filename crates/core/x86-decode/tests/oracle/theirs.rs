//! What iced-x86 makes of the same bytes, in our words. Of an instruction that is no device's it is `None`.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register as Theirs};
use mayfly_x86_decode::{
    Arithmetic, Base, Memory, Operation, Port, Register, Segment, Source, StatusWord, Strings,
    System, Width,
};

fn width(bytes: usize) -> Width {
    match bytes {
        1 => Width::Byte,
        2 => Width::Word,
        4 => Width::Dword,
        8 => Width::Qword,
        _ => panic!("no width of {bytes} bytes"),
    }
}

fn register(register: Theirs) -> Register {
    let second = [Theirs::AH, Theirs::CH, Theirs::DH, Theirs::BH];
    match second.iter().position(|second| *second == register) {
        Some(number) => Register { number: number as u8, second_byte: true },
        None => Register { number: register.full_register().number() as u8, second_byte: false },
    }
}

fn segment(instruction: &Instruction) -> Segment {
    match instruction.memory_segment() {
        Theirs::ES => Segment::Es,
        Theirs::CS => Segment::Cs,
        Theirs::SS => Segment::Ss,
        Theirs::DS => Segment::Ds,
        Theirs::FS => Segment::Fs,
        Theirs::GS => Segment::Gs,
        other => panic!("{other:?} is no segment"),
    }
}

/// The operand in memory; its displacement is compared as a part of its address.
fn memory(instruction: &Instruction) -> Memory {
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let bytes = match (base, index) {
        (Theirs::None, Theirs::None) => instruction.memory_displ_size() as usize,
        (Theirs::None, index) => index.size(),
        (base, _) => base.size(),
    };
    let base = match base {
        Theirs::None => None,
        Theirs::RIP | Theirs::EIP => Some(Base::NextInstruction),
        base => Some(Base::Register(base.number() as u8)),
    };
    let scale = instruction.memory_index_scale() as u8;
    let index = (index != Theirs::None).then(|| (index.number() as u8, scale));
    Memory { segment: segment(instruction), base, index, displacement: 0, width: width(bytes) }
}

fn source(instruction: &Instruction, bytes: Width) -> Source {
    match instruction.op_kind(1) {
        OpKind::Register => Source::Register(register(instruction.op_register(1))),
        _ => Source::Immediate(instruction.immediate(1) & bytes.mask()),
    }
}

fn strings(instruction: &Instruction) -> Strings {
    let is =
        |kinds: [OpKind; 2]| (0..2).any(|operand| kinds.contains(&instruction.op_kind(operand)));
    let addresses = if is([OpKind::MemorySegSI, OpKind::MemoryESDI]) {
        Width::Word
    } else if is([OpKind::MemorySegESI, OpKind::MemoryESEDI]) {
        Width::Dword
    } else {
        Width::Qword
    };
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    Strings { width: width(instruction.memory_size().size()), addresses, repeats }
}

fn arithmetic(mnemonic: Mnemonic) -> Option<Arithmetic> {
    Some(match mnemonic {
        Mnemonic::Add => Arithmetic::Add,
        Mnemonic::Or => Arithmetic::Or,
        Mnemonic::Adc => Arithmetic::Adc,
        Mnemonic::Sbb => Arithmetic::Sbb,
        Mnemonic::And => Arithmetic::And,
        Mnemonic::Sub => Arithmetic::Sub,
        Mnemonic::Xor => Arithmetic::Xor,
        Mnemonic::Cmp => Arithmetic::Cmp,
        Mnemonic::Test => Arithmetic::Test,
        _ => return None,
    })
}

fn system(mnemonic: Mnemonic) -> Option<System> {
    Some(match mnemonic {
        Mnemonic::Clts => System::Clts,
        Mnemonic::Cpuid => System::Cpuid,
        Mnemonic::Hlt => System::Hlt,
        Mnemonic::Invd => System::Invd,
        Mnemonic::Monitor => System::Monitor,
        Mnemonic::Mwait => System::Mwait,
        Mnemonic::Pause => System::Pause,
        Mnemonic::Rdmsr => System::Rdmsr,
        Mnemonic::Rdpmc => System::Rdpmc,
        Mnemonic::Rdtsc => System::Rdtsc,
        Mnemonic::Rdtscp => System::Rdtscp,
        Mnemonic::Vmcall => System::Vmcall,
        Mnemonic::Vmmcall => System::Vmmcall,
        Mnemonic::Wbinvd => System::Wbinvd,
        Mnemonic::Wbnoinvd => System::Wbnoinvd,
        Mnemonic::Wrmsr => System::Wrmsr,
        Mnemonic::Xsetbv => System::Xsetbv,
        _ => return None,
    })
}

fn status_word(instruction: &Instruction, is_read: bool) -> StatusWord {
    if instruction.op0_kind() == OpKind::Memory {
        return StatusWord::Memory(memory(instruction));
    }
    let place = instruction.op0_register();
    StatusWord::Register(register(place), if is_read { width(place.size()) } else { Width::Word })
}

/// `mov`.
fn moved(instruction: &Instruction) -> Option<Operation> {
    let (first, second) = (instruction.op0_register(), instruction.op1_register());
    if first.is_segment_register() || second.is_segment_register() {
        return None;
    }
    let bytes = || width(instruction.memory_size().size());
    if instruction.op0_kind() == OpKind::Memory {
        let source = source(instruction, bytes());
        return Some(Operation::Store { memory: memory(instruction), width: bytes(), source });
    }
    if instruction.op1_kind() == OpKind::Memory {
        return loaded(instruction, false);
    }
    let number = |register: Theirs| register.number() as u8;
    Some(Operation::System(if second.is_cr() {
        System::ReadControl(number(second), register(first))
    } else if second.is_dr() {
        System::ReadDebug(number(second), register(first))
    } else if first.is_cr() {
        System::WriteControl(number(first), register(second))
    } else if first.is_dr() {
        System::WriteDebug(number(first), register(second))
    } else {
        return None;
    }))
}

fn loaded(instruction: &Instruction, signed: bool) -> Option<Operation> {
    (instruction.op1_kind() == OpKind::Memory).then(|| Operation::Load {
        memory: memory(instruction),
        width: width(instruction.memory_size().size()),
        register: register(instruction.op0_register()),
        to: width(instruction.op0_register().size()),
        signed,
    })
}

fn computed(instruction: &Instruction, arithmetic: Arithmetic) -> Option<Operation> {
    let bytes = || width(instruction.memory_size().size());
    if instruction.op0_kind() == OpKind::Memory {
        let source = source(instruction, bytes());
        let memory = memory(instruction);
        Some(Operation::ToMemory { arithmetic, memory, width: bytes(), source })
    } else if instruction.op1_kind() == OpKind::Memory {
        let register = register(instruction.op0_register());
        let memory = memory(instruction);
        Some(Operation::ToRegister { arithmetic, register, width: bytes(), memory })
    } else {
        None
    }
}

fn port(instruction: &Instruction, operand: u32) -> Port {
    match instruction.op_kind(operand) {
        OpKind::Immediate8 => Port::Immediate(instruction.immediate8()),
        _ => Port::Dx,
    }
}

pub(crate) fn operation(instruction: &Instruction) -> Option<Operation> {
    match instruction.code() {
        Code::Movsb_m8_m8 | Code::Movsw_m16_m16 | Code::Movsd_m32_m32 | Code::Movsq_m64_m64 => {
            return Some(Operation::MoveString(strings(instruction), segment(instruction)));
        }
        Code::Stosb_m8_AL | Code::Stosw_m16_AX | Code::Stosd_m32_EAX | Code::Stosq_m64_RAX => {
            return Some(Operation::StoreString(strings(instruction)));
        }
        Code::Lodsb_AL_m8 | Code::Lodsw_AX_m16 | Code::Lodsd_EAX_m32 | Code::Lodsq_RAX_m64 => {
            return Some(Operation::LoadString(strings(instruction), segment(instruction)));
        }
        // A second form of `test`, of which no manual says anything; and `movsxd` that extends nothing.
        Code::Test_rm8_imm8_F6r1
        | Code::Test_rm16_imm16_F7r1
        | Code::Test_rm32_imm32_F7r1
        | Code::Test_rm64_imm32_F7r1
        | Code::Movsxd_r16_rm16
        | Code::Movsxd_r32_rm32 => return None,
        _ => {}
    }
    match instruction.mnemonic() {
        Mnemonic::Mov => moved(instruction),
        Mnemonic::Movzx => loaded(instruction, false),
        Mnemonic::Movsx | Mnemonic::Movsxd => loaded(instruction, true),
        Mnemonic::Xchg => (instruction.op0_kind() == OpKind::Memory).then(|| Operation::Exchange {
            memory: memory(instruction),
            width: width(instruction.memory_size().size()),
            register: register(instruction.op1_register()),
        }),
        Mnemonic::In => {
            let bytes = width(instruction.op0_register().size());
            Some(Operation::In(bytes, port(instruction, 1)))
        }
        Mnemonic::Out => {
            let bytes = width(instruction.op1_register().size());
            Some(Operation::Out(bytes, port(instruction, 0)))
        }
        Mnemonic::Insb | Mnemonic::Insw | Mnemonic::Insd => {
            Some(Operation::InString(strings(instruction)))
        }
        Mnemonic::Outsb | Mnemonic::Outsw | Mnemonic::Outsd => {
            Some(Operation::OutString(strings(instruction), segment(instruction)))
        }
        Mnemonic::Smsw => Some(Operation::System(System::Smsw(status_word(instruction, true)))),
        Mnemonic::Lmsw => Some(Operation::System(System::Lmsw(status_word(instruction, false)))),
        Mnemonic::Invlpg => Some(Operation::System(System::Invlpg(memory(instruction)))),
        mnemonic => match arithmetic(mnemonic) {
            Some(arithmetic) => computed(instruction, arithmetic),
            None => system(mnemonic).map(Operation::System),
        },
    }
}
