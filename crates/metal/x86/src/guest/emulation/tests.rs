//! The processor that runs the tests is the oracle of what is computed.

use mayfly_x86_decode::{Mode, decode};
use proptest::prelude::*;

use super::*;

const RDI: u64 = 0xfee0_0000;

/// Carries `code` out, where the device has `device` in 8 bytes. What it wrote there, and how much.
fn carry_out(code: &[u8], registers: &mut Registers, device: u64) -> Option<(u64, Width)> {
    let operation = decode(Mode::Bits64, code).unwrap().operation;
    let first = first(&operation, registers).unwrap();
    assert_eq!(first.memory.offset(|number| registers.general[usize::from(number)], 0), RDI);
    let written = match first.written {
        Some(value) => Some(value),
        None => then(&operation, registers, device & first.width.mask()),
    };
    written.map(|value| (value, first.width))
}

fn registers(general: [u64; 16], flags: u64) -> Registers {
    let mut registers = Registers { general, flags };
    registers.general[7] = RDI;
    registers
}

#[test]
fn loads_extend_as_they_are_to_and_leave_what_they_do_not_write() {
    let mut guest = registers([u64::MAX; 16], 2);
    let mut load = |code: &[u8], device| {
        assert_eq!(carry_out(code, &mut guest, device), None);
        core::mem::replace(&mut guest.general[0], u64::MAX)
    };
    assert_eq!(load(&[0x8b, 0x07], 0x1_8000_0001), 0x8000_0001); // mov eax, [rdi]
    assert_eq!(load(&[0x66, 0x8b, 0x07], 0x12_3456), 0xffff_ffff_ffff_3456); // mov ax, [rdi]
    assert_eq!(load(&[0x8a, 0x27], 0x1234), 0xffff_ffff_ffff_34ff); // mov ah, [rdi]
    assert_eq!(load(&[0x0f, 0xb6, 0x07], 0x1ff), 0xff); // movzx eax, byte [rdi]
    assert_eq!(load(&[0x48, 0x0f, 0xbe, 0x07], 0x180), 0xffff_ffff_ffff_ff80); // movsx rax, byte [rdi]
    assert_eq!(load(&[0x0f, 0xbf, 0x07], 0x8000), 0xffff_8000); // movsx eax, word [rdi]
}

#[test]
fn stores_and_exchanges_write_what_the_register_has() {
    let mut guest = registers([0x1122_3344_5566_7788; 16], 2);
    assert_eq!(carry_out(&[0x88, 0x27], &mut guest, 0), Some((0x77, Width::Byte))); // mov [rdi], ah
    let immediate = [0xc7, 0x07, 0xff, 0xff, 0xff, 0xff]; // mov dword [rdi], -1
    assert_eq!(carry_out(&immediate, &mut guest, 0), Some((0xffff_ffff, Width::Dword)));
    assert_eq!(carry_out(&[0x87, 0x07], &mut guest, 9), Some((0x5566_7788, Width::Dword))); // xchg [rdi], eax
    assert_eq!(guest.general[0], 9);
}

#[test]
fn a_string_is_not_carried_out() {
    let operation = decode(Mode::Bits64, &[0xf3, 0xa5]).unwrap().operation;
    assert_eq!(first(&operation, &registers([0; 16], 2)), None);
}

/// What this processor makes of `first` and `second` by one instruction in 64 bits, with the carry set or clear.
#[cfg(target_arch = "x86_64")]
fn processor(number: u8, mut first: u64, second: u64, carry: bool) -> (u64, u64) {
    use core::arch::asm;
    let mut flags: u64;
    let carry = u64::from(carry);
    macro_rules! run {
        ($name:literal) => {
            // SAFETY: it computes, and leaves the stack as it was.
            unsafe {
                asm!("bt {carry}, 0", concat!($name, " {first}, {second}"), "pushfq", "pop {flags}",
                    carry = in(reg) carry, first = inout(reg) first, second = in(reg) second, flags = out(reg) flags);
            }
        };
    }
    match number {
        0 => run!("add"),
        1 => run!("or"),
        2 => run!("adc"),
        3 => run!("sbb"),
        4 => run!("and"),
        5 => run!("sub"),
        6 => run!("xor"),
        7 => run!("cmp"),
        _ => run!("test"),
    }
    (first, flags & STATUS)
}

#[cfg(target_arch = "x86_64")]
proptest! {
    #[test]
    fn results_and_flags_are_those_of_a_processor(
        number in 0_u8..9, first: u64, second: u64, carry: bool, narrow in 0_u32..4, to_memory: bool,
    ) {
        // A narrow number at the top of 64 bits has the same carry, overflow, zero and sign; its low half does not.
        let width = [Width::Byte, Width::Word, Width::Dword, Width::Qword][narrow as usize];
        let shift = 64 - 8 * width.bytes();
        let (first, second) = (first & width.mask(), second & width.mask());
        let flags = 2 | u64::from(carry);
        let mut guest = registers([0; 16], flags);
        let prefix: &[u8] = match width { Width::Word => &[0x66], Width::Qword => &[0x48], _ => &[] };
        let wide = u8::from(width != Width::Byte);
        let opcode = match (number, to_memory) {
            (8, _) => 0x84,
            (_, true) => number << 3,
            (_, false) => number << 3 | 2,
        } | wide;
        let to_memory = to_memory || number == 8;
        let code: std::vec::Vec<u8> = prefix.iter().copied().chain([opcode, 0x07]).collect();
        let (register, device) = if to_memory { (second, first) } else { (first, second) };
        guest.general[0] = register;
        let written = carry_out(&code, &mut guest, device);
        let result = match written {
            Some((value, its)) => { prop_assert_eq!(its, width); Some(value) }
            None if to_memory => None,
            None => Some(guest.general[0] & width.mask()),
        };
        // The carry of the whole is that of the top: what is shifted in below has to carry on.
        let carries = carry && matches!(number, 2 | 3);
        let below = (1_u64 << shift).wrapping_sub(1);
        let top = |value: u64, fill: bool| value << shift | if fill { below } else { 0 };
        let (expected, flags) = match number {
            2 => processor(2, top(first, carries), top(second, false), carries),
            3 => processor(3, top(first, false), top(second, false), carries),
            _ => processor(number, top(first, false), top(second, false), carry),
        };
        let is_kept = number < 7;
        if is_kept {
            prop_assert_eq!(result, Some(expected >> shift));
        } else {
            prop_assert_eq!(written, None);
        }
        // Parity and adjust are of the lowest bits, and zero is of all: those only of the full width.
        let compared = if width == Width::Qword { STATUS & !if matches!(number, 1 | 4 | 6 | 8) { ADJUST } else { 0 } } else { CARRY | OVERFLOW | SIGN };
        prop_assert_eq!(guest.flags & compared, flags & compared);
        let value = if is_kept { expected >> shift } else if number == 8 { first & second } else { first.wrapping_sub(second) & width.mask() };
        prop_assert_eq!(guest.flags & ZERO != 0, value == 0);
        prop_assert_eq!(guest.flags & PARITY != 0, (value as u8).count_ones().is_multiple_of(2));
        prop_assert_eq!(guest.flags & !STATUS, 2);
    }
}
