//! What an instruction works with.

/// How many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the manuals'")]
pub enum Width {
    Byte = 1,
    Word = 2,
    Dword = 4,
    Qword = 8,
}

impl Width {
    /// How many bytes.
    pub const fn bytes(self) -> u32 {
        self as u32
    }

    /// The bits that a value of this width has.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

/// A general register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// 0 to 15: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 and so on.
    pub number: u8,
    /// Bits 15 to 8 of it: AH, CH, DH, BH.
    pub second_byte: bool,
}

/// RAX.
pub const RAX: Register = Register { number: 0, second_byte: false };

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the manuals'")]
pub enum Segment {
    Es,
    Cs,
    Ss,
    Ds,
    Fs,
    Gs,
}

/// What an address is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A register, by its number.
    Register(u8),
    /// The address of the next instruction.
    NextInstruction,
}

/// An operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The segment that it is in. In 64 bits only FS and GS have a base.
    pub segment: Segment,
    /// What is added up: a base,
    pub base: Option<Base>,
    /// a register, by its number, times 1, 2, 4 or 8,
    pub index: Option<(u8, u8)>,
    /// and a displacement.
    pub displacement: i64,
    /// The sum has so many bytes.
    pub width: Width,
}

impl Memory {
    /// The address in its segment, of general registers, and of the address of the next instruction.
    pub fn offset(&self, register: impl Fn(u8) -> u64, next_instruction: u64) -> u64 {
        let base = match self.base {
            Some(Base::Register(number)) => register(number),
            Some(Base::NextInstruction) => next_instruction,
            None => 0,
        };
        let index =
            self.index.map_or(0, |(number, scale)| register(number).wrapping_mul(scale.into()));
        let sum = base.wrapping_add(index).wrapping_add_signed(self.displacement);
        sum & self.width.mask()
    }
}

/// What is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a register.
    Register(Register),
    /// In the instruction: as many bits as the operation is wide, of a number whose sign was extended.
    Immediate(u64),
}

/// Where `smsw` puts the machine status word, which is the lower half of CR0, and where `lmsw` takes it from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWord {
    /// A register. `smsw` writes so much of it, with as much of CR0; `lmsw` takes 16 bits.
    Register(Register, Width),
    /// 16 bits of memory.
    Memory(Memory),
}

/// Which port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// In the instruction.
    Immediate(u8),
    /// In DX.
    Dx,
}
