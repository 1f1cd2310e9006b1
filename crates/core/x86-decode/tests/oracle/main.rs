//! The decoder beside iced-x86: each finds the same instructions, of the same length, with the same operands at the same
//! addresses, and the same ones end too early.

mod theirs;

use iced_x86::{Code, Decoder, DecoderError, DecoderOptions, Instruction};
use mayfly_x86_decode::{Memory, Mode, Operation, StatusWord, System, Undecoded, decode};
use proptest::prelude::*;

const MODES: [Mode; 3] = [Mode::Bits16, Mode::Bits32, Mode::Bits64];

/// Where the instruction is, which counts for addresses that are relative to it.
const fn place(mode: Mode) -> (u32, u64) {
    match mode {
        Mode::Bits16 => (16, 0x1234),
        Mode::Bits32 => (32, 0x89ab_cdef),
        Mode::Bits64 => (64, 0xffff_8000_1234_5678),
    }
}

/// The operand in memory of an operation.
fn memory(operation: &mut Operation) -> Option<&mut Memory> {
    match operation {
        Operation::Load { memory, .. }
        | Operation::Store { memory, .. }
        | Operation::Exchange { memory, .. }
        | Operation::ToMemory { memory, .. }
        | Operation::ToRegister { memory, .. }
        | Operation::System(
            System::Invlpg(memory)
            | System::Smsw(StatusWord::Memory(memory))
            | System::Lmsw(StatusWord::Memory(memory)),
        ) => Some(memory),
        _ => None,
    }
}

/// What each general register has.
fn value(number: u8) -> u64 {
    (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The address of the operand in memory, as iced-x86 has it, without its segment.
fn address(instruction: &Instruction) -> u64 {
    let operand = (0..instruction.op_count())
        .find(|operand| instruction.op_kind(*operand) == iced_x86::OpKind::Memory)
        .expect("an operand in memory");
    let register = |register: iced_x86::Register, _, _| {
        if register.is_segment_register() {
            return Some(0);
        }
        let mask = u64::MAX >> (64 - 8 * register.size());
        Some(value(register.number() as u8) & mask)
    };
    instruction.virtual_address(operand, 0, register).expect("an address")
}

/// Compares what both make of the bytes; whether there is an instruction of a device.
fn compare(mode: Mode, bytes: &[u8]) -> bool {
    let (bits, ip) = place(mode);
    let mut decoder = Decoder::with_ip(bits, bytes, ip, DecoderOptions::AMD);
    let instruction = decoder.decode();
    let ours = decode(mode, bytes);
    let said = format!("{mode:?}, {bytes:x?}: {ours:x?}, {:?}", instruction.code());
    match decoder.last_error() {
        DecoderError::NoMoreBytes => {
            let early = matches!(ours, Err(Undecoded::Truncated | Undecoded::Other));
            assert!(early, "{said}");
            return false;
        }
        DecoderError::InvalidInstruction => {
            // What is invalid may be found before its last byte, or behind it.
            let is_early = ours == Err(Undecoded::Truncated) && bytes.len() < 15;
            let invalid = matches!(ours, Err(Undecoded::Other | Undecoded::TooLong));
            assert!(is_early || invalid, "{said}");
            return false;
        }
        _ => {}
    }
    // That iced-x86 takes `xchg r8, rax` behind 0xf3 for `pause`, whatever REX.B says, is its own.
    let is_exchange = instruction.code() == Code::Pause && ours.is_err();
    if is_exchange && bytes[..instruction.len()].iter().any(|byte| byte & 0xf1 == 0x41) {
        assert_eq!((mode, ours), (Mode::Bits64, Err(Undecoded::Other)), "{said}");
        return false;
    }
    let Some(expected) = theirs::operation(&instruction) else {
        assert_eq!(ours, Err(Undecoded::Other), "{said}");
        return false;
    };
    let Ok(ours) = ours else { panic!("{said}") };
    assert_eq!(usize::from(ours.length), instruction.len(), "{said}");
    let mut operation = ours.operation;
    if let Some(memory) = memory(&mut operation) {
        let next = ip.wrapping_add(ours.length.into());
        assert_eq!(memory.offset(value, next), address(&instruction), "{said}");
        memory.displacement = 0;
    }
    assert_eq!(operation, expected, "{said}");

    // Its bytes alone are enough, and each fewer is too few.
    let own = &bytes[..usize::from(ours.length)];
    assert_eq!(decode(mode, own), Ok(ours), "{said}");
    for fewer in 0..own.len() {
        assert_eq!(decode(mode, &own[..fewer]), Err(Undecoded::Truncated), "{fewer} of {said}");
    }
    true
}

#[test]
fn a_pause_with_the_extension_of_a_register_is_an_exchange_of_two_registers() {
    for rex in 0x40..=0x4f {
        let ours = decode(Mode::Bits64, &[0xf3, rex, 0x90]);
        if rex & 1 == 0 {
            assert_eq!(ours.map(|ours| ours.operation), Ok(Operation::System(System::Pause)));
        } else {
            assert_eq!(ours, Err(Undecoded::Other), "{rex:#x}");
        }
    }
}

#[test]
fn what_reads_and_writes_the_status_word_is_decoded_in_each_mode_and_from_each_place() {
    for mode in MODES {
        for (reg, is_read) in [(4, true), (6, false)] {
            for rm in 0..8 {
                for (form, in_memory) in [(0x00, true), (0xc0, false)] {
                    let bytes = [0x0f, 0x01, form | reg << 3 | rm, 0, 0, 0, 0, 0];
                    let operation = decode(mode, &bytes).unwrap().operation;
                    let (place, reads) = match operation {
                        Operation::System(System::Smsw(place)) => (place, true),
                        Operation::System(System::Lmsw(place)) => (place, false),
                        other => panic!("{mode:?}, {bytes:x?}: {other:?}"),
                    };
                    assert_eq!(reads, is_read);
                    assert_eq!(matches!(place, StatusWord::Memory(_)), in_memory);
                }
            }
        }
    }
}

/// What follows `ModRM`: any SIB, any displacement, any immediate.
fn rest(seed: u32) -> [u8; 12] {
    let words = [1_u32, 2, 3].map(|index| seed.wrapping_add(index).wrapping_mul(0x9e37_79b1));
    let mut rest = [0; 12];
    for (bytes, word) in rest.chunks_mut(4).zip(words) {
        bytes.copy_from_slice(&word.rotate_left(13).to_le_bytes());
    }
    rest
}

/// All opcodes of one and two bytes, with these bytes of `ModRM`, behind a prefix: how many are a device's.
fn opcodes(mode: Mode, prefix: &[u8], modrms: &[u8]) -> usize {
    let mut found = 0;
    for opcode in 0..0x200_u32 {
        for modrm in modrms {
            let mut bytes = prefix.to_vec();
            if opcode >= 0x100 {
                bytes.push(0x0f);
            }
            bytes.extend([opcode as u8, *modrm]);
            bytes.extend(rest(opcode << 8 | u32::from(*modrm)));
            found += usize::from(compare(mode, &bytes));
        }
    }
    found
}

#[test]
fn all_opcodes_with_all_modrm_bytes_are_as_iced_has_them() {
    let modrms: Vec<_> = (0..=u8::MAX).collect();
    let found = MODES.map(|mode| opcodes(mode, &[], &modrms));
    // 12 opcodes of 4 forms, and so on, each with the 192 ModRM bytes that name memory: nearly as many in all modes.
    assert!(found.iter().all(|found| *found > 10_000), "{found:?}");
}

/// One of each addressing form, with each `reg`, and three that name registers.
fn some_modrms() -> Vec<u8> {
    let forms = [0x00, 0x04, 0x05, 0x06, 0x44, 0x45, 0x84, 0x86, 0xc1, 0xf9];
    forms.into_iter().flat_map(|form| [0, 0x10, 0x38].map(|reg| form ^ reg)).collect()
}

#[test]
fn all_opcodes_behind_each_prefix_and_each_two_are_as_iced_has_them() {
    let single: Vec<u8> =
        vec![0x26, 0x2e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x41, 0x44, 0x48, 0x4f];
    let modrms = some_modrms();
    let mut found = 0;
    for mode in MODES {
        for first in &single {
            found += opcodes(mode, &[*first], &modrms);
        }
        for pair in [
            [0x66, 0x48],
            [0x48, 0x66],
            [0x67, 0x48],
            [0x66, 0x67],
            [0xf2, 0xf3],
            [0xf3, 0xf2],
            [0x64, 0x2e],
            [0x2e, 0x64],
            [0x64, 0x65],
            [0xf0, 0x44],
            [0xf3, 0x48],
            [0xf0, 0x66],
            [0x40, 0x42],
            [0x66, 0xf3],
        ] {
            found += opcodes(mode, &pair, &modrms);
        }
    }
    assert!(found > 50_000, "{found}");
}

#[test]
fn all_sib_bytes_with_all_rex_prefixes_are_as_iced_has_them() {
    for mode in MODES {
        let prefixes = if mode == Mode::Bits64 { 0x40..=0x4f } else { 0x67..=0x67 };
        for prefix in prefixes {
            for sib in 0..=u8::MAX {
                for form in [0x04, 0x4c, 0x9c] {
                    for opcode in [0x8b, 0x88] {
                        let mut bytes = vec![prefix, opcode, form, sib];
                        bytes.extend(rest(sib.into()));
                        assert!(compare(mode, &bytes), "{bytes:x?}");
                        assert!(compare(mode, &[&[0x67], &bytes[..]].concat()[..15]));
                    }
                }
            }
        }
    }
}

#[test]
fn up_to_fourteen_prefixes_are_read_and_a_longer_instruction_is_too_long() {
    for (bytes, most) in
        [(&[0xec_u8][..], 14), (&[0x0f, 0xa2], 13), (&[0x89, 0x00], 13), (&[0xe4, 0x70], 13)]
    {
        for prefix in [0x66, 0x2e, 0xf3, 0x65] {
            for count in 0..=16 {
                let bytes = [vec![prefix; count], bytes.to_vec()].concat();
                let ours = decode(Mode::Bits32, &bytes);
                if count <= most {
                    assert_eq!(ours.map(|ours| usize::from(ours.length)), Ok(bytes.len()));
                } else {
                    assert_eq!(ours, Err(Undecoded::TooLong), "{bytes:x?}");
                }
                compare(Mode::Bits32, &bytes);
            }
        }
    }
}

fn any_prefixes() -> impl Strategy<Value = Vec<u8>> {
    let legacy = prop::sample::select(vec![
        0x26_u8, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x66, 0x67,
    ]);
    let prefix = prop_oneof![4 => legacy, 1 => 0x40..=0x4f_u8];
    prop_oneof![
        4 => prop::collection::vec(prefix.clone(), 0..4),
        1 => prop::collection::vec(prefix, 0..15),
    ]
}

/// Opcodes that are a device's, mostly.
fn any_opcode() -> impl Strategy<Value = Vec<u8>> {
    let one = prop::sample::select(vec![
        0x01_u8, 0x0b, 0x22, 0x38, 0x3b, 0x63, 0x6d, 0x6e, 0x80, 0x81, 0x83, 0x85, 0x86, 0x87,
        0x88, 0x89, 0x8a, 0x8b, 0xa1, 0xa3, 0xa4, 0xa5, 0xab, 0xac, 0xc6, 0xc7, 0xe4, 0xef, 0xf6,
        0xf7,
    ]);
    let two = prop::sample::select(vec![
        0x01_u8, 0x09, 0x20, 0x22, 0x23, 0x30, 0xa2, 0xb6, 0xb7, 0xbe, 0xbf,
    ]);
    prop_oneof![
        6 => one.prop_map(|opcode| vec![opcode]),
        2 => two.prop_map(|opcode| vec![0x0f, opcode]),
        1 => any::<u8>().prop_map(|opcode| vec![opcode]),
        1 => any::<u8>().prop_map(|opcode| vec![0x0f, opcode]),
    ]
}

fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(4096) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_prefixes_before_any_opcode_are_as_iced_has_them(
        mode in prop::sample::select(MODES.to_vec()),
        prefixes in any_prefixes(), opcode in any_opcode(),
        rest in prop::collection::vec(any::<u8>(), 0..14),
    ) {
        compare(mode, &[prefixes, opcode, rest].concat());
    }

    #[test]
    fn any_bytes_are_as_iced_has_them(
        mode in prop::sample::select(MODES.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 0..18),
    ) {
        compare(mode, &bytes);
    }
}
