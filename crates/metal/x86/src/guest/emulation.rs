//! An instruction that accesses a device: what it reads or writes there, and what it leaves in the guest's registers.
//!
//! An instruction makes one access, or reads first and then writes. The caller makes them: each may need something that is
//! not here.

use mayfly_x86_decode::{Arithmetic, Memory, Operation, Register, Source, Width};

const CARRY: u64 = 1 << 0;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;
const STATUS: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;

/// A guest's general registers, by their numbers, and its flags.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 and so on.
    pub general: [u64; 16],
    /// RFLAGS.
    pub flags: u64,
}

impl Registers {
    /// What a register has, as far as `width` goes.
    pub fn get(&self, register: Register, width: Width) -> u64 {
        let value = self.general[usize::from(register.number & 15)];
        let value = if register.second_byte { value >> 8 } else { value };
        value & width.mask()
    }

    /// Writes so much of a register. 32 bits clear the upper half.
    pub fn set(&mut self, register: Register, width: Width, value: u64) {
        let place = &mut self.general[usize::from(register.number & 15)];
        *place = if register.second_byte {
            *place & !0xff00 | (value & 0xff) << 8
        } else {
            merged(*place, width, value)
        };
    }

    fn source(&self, source: Source, width: Width) -> u64 {
        match source {
            Source::Register(register) => self.get(register, width),
            Source::Immediate(value) => value & width.mask(),
        }
    }
}

/// A register of which so much is written. 32 bits clear the upper half.
pub const fn merged(register: u64, width: Width, value: u64) -> u64 {
    let value = value & width.mask();
    match width {
        Width::Byte | Width::Word => register & !width.mask() | value,
        Width::Dword | Width::Qword => value,
    }
}

/// Whether an operation that has read from memory may write there.
pub const fn writes_back(operation: &Operation) -> bool {
    matches!(operation, Operation::Exchange { .. } | Operation::ToMemory { .. })
}

/// The first access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// Where.
    pub memory: Memory,
    /// How much.
    pub width: Width,
    /// What is written, if it writes.
    pub written: Option<u64>,
}

/// The first access of an operation. `None` if it is not carried out here: it accesses no memory, or a string of it.
pub fn first(operation: &Operation, registers: &Registers) -> Option<First> {
    let (memory, width, written) = match *operation {
        Operation::Load { memory, width, .. }
        | Operation::Exchange { memory, width, .. }
        | Operation::ToMemory { memory, width, .. }
        | Operation::ToRegister { memory, width, .. } => (memory, width, None),
        Operation::Store { memory, width, source } => {
            (memory, width, Some(registers.source(source, width)))
        }
        _ => return None,
    };
    Some(First { memory, width, written })
}

/// Goes on with an operation whose first access has read `value`. What it writes to the same place, if it writes; its
/// registers are as behind it.
pub fn then(operation: &Operation, registers: &mut Registers, value: u64) -> Option<u64> {
    match *operation {
        Operation::Load { width, register, to, signed, .. } => {
            let value = if signed { extended(value, width) } else { value & width.mask() };
            registers.set(register, to, value);
            None
        }
        Operation::Exchange { width, register, .. } => {
            let written = registers.get(register, width);
            registers.set(register, width, value);
            Some(written)
        }
        Operation::ToMemory { arithmetic, width, source, .. } => {
            let second = registers.source(source, width);
            let (result, flags) = compute(arithmetic, width, value, second, registers.flags);
            registers.flags = registers.flags & !STATUS | flags;
            result
        }
        Operation::ToRegister { arithmetic, register, width, .. } => {
            let first = registers.get(register, width);
            let (result, flags) = compute(arithmetic, width, first, value, registers.flags);
            registers.flags = registers.flags & !STATUS | flags;
            if let Some(result) = result {
                registers.set(register, width, result);
            }
            None
        }
        _ => None,
    }
}

const fn extended(value: u64, width: Width) -> u64 {
    let shift = 64 - 8 * width.bytes();
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}

/// The result of two numbers, unless it sets flags alone, and the flags (AMD APM volume 1, 3.1.4). `ADJUST` of the logical
/// ones, which the manual leaves undefined, is clear.
fn compute(
    arithmetic: Arithmetic,
    width: Width,
    first: u64,
    second: u64,
    flags: u64,
) -> (Option<u64>, u64) {
    let mask = width.mask();
    let top = mask ^ mask >> 1;
    let (first, second) = (first & mask, second & mask);
    let carry = match arithmetic {
        Arithmetic::Adc | Arithmetic::Sbb => flags & CARRY,
        _ => 0,
    };
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    let (result, own) = match arithmetic {
        Arithmetic::Add | Arithmetic::Adc => {
            let wide = u128::from(first) + u128::from(second) + u128::from(carry);
            let result = wide as u64 & mask;
            let overflows = (first ^ result) & (second ^ result) & top != 0;
            (result, flag(wide > u128::from(mask), CARRY) | flag(overflows, OVERFLOW))
        }
        Arithmetic::Sub | Arithmetic::Sbb | Arithmetic::Cmp => {
            let result = first.wrapping_sub(second).wrapping_sub(carry) & mask;
            let borrows = u128::from(first) < u128::from(second) + u128::from(carry);
            let overflows = (first ^ second) & (first ^ result) & top != 0;
            (result, flag(borrows, CARRY) | flag(overflows, OVERFLOW))
        }
        Arithmetic::And | Arithmetic::Test => (first & second, 0),
        Arithmetic::Or => (first | second, 0),
        Arithmetic::Xor => (first ^ second, 0),
    };
    let is_logical =
        matches!(arithmetic, Arithmetic::And | Arithmetic::Test | Arithmetic::Or | Arithmetic::Xor);
    let flags = own
        | flag(result == 0, ZERO)
        | flag(result & top != 0, SIGN)
        | flag((result as u8).count_ones().is_multiple_of(2), PARITY)
        | flag(!is_logical && (first ^ second ^ result) & 0x10 != 0, ADJUST);
    let is_kept = !matches!(arithmetic, Arithmetic::Cmp | Arithmetic::Test);
    (is_kept.then_some(result), flags)
}

#[cfg(test)]
mod tests;
