//! What an instruction does.

use crate::operand::{Memory, Port, Register, Segment, Source, StatusWord, Width};

/// An instruction, as far as it is a hypervisor's to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// How many bytes it has: 1 to 15.
    pub length: u8,
    /// What it does.
    pub operation: Operation,
}

/// What an instruction computes of its two operands, of which the first gets the result. All set flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the manuals'")]
pub enum Arithmetic {
    Add,
    Or,
    Adc,
    Sbb,
    And,
    Sub,
    Xor,
    /// A difference that sets flags alone.
    Cmp,
    /// A conjunction that sets flags alone.
    Test,
}

/// A string instruction: once, or `CX`, `ECX` or `RCX` times, by the width of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strings {
    /// How many bytes are moved each time.
    pub width: Width,
    /// The width of addresses and of the count.
    pub addresses: Width,
    /// Whether it repeats. (0xf2 repeats these as 0xf3 does.)
    pub repeats: bool,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `mov`, `movzx`, `movsx` and `movsxd` from memory.
    Load {
        /// From where,
        memory: Memory,
        /// how much,
        width: Width,
        /// to where.
        register: Register,
        /// How much of the register is written: no less than `width`. (32 bits clear the upper half.)
        to: Width,
        /// Whether the sign is extended, or zeros are put in front.
        signed: bool,
    },
    /// `mov` to memory.
    Store {
        /// To where,
        memory: Memory,
        /// how much,
        width: Width,
        /// of what.
        source: Source,
    },
    /// `xchg`.
    Exchange {
        /// Memory,
        memory: Memory,
        /// how much of it,
        width: Width,
        /// with this.
        register: Register,
    },
    /// `add` to `xor`, `cmp` and `test`, whose first operand is memory.
    ToMemory {
        /// What is computed,
        arithmetic: Arithmetic,
        /// of this,
        memory: Memory,
        /// in this width,
        width: Width,
        /// and this.
        source: Source,
    },
    /// `add` to `xor`, and `cmp`, whose second operand is memory.
    ToRegister {
        /// What is computed,
        arithmetic: Arithmetic,
        /// of this,
        register: Register,
        /// in this width,
        width: Width,
        /// and this.
        memory: Memory,
    },
    /// `movs`: from the segment at SI to ES at DI.
    MoveString(Strings, Segment),
    /// `stos`: from AL, AX, EAX or RAX to ES at DI.
    StoreString(Strings),
    /// `lods`: from the segment at SI to AL, AX, EAX or RAX.
    LoadString(Strings, Segment),
    /// `in`, to AL, AX or EAX.
    In(Width, Port),
    /// `out`, from AL, AX or EAX.
    Out(Width, Port),
    /// `ins`: from the port in DX to ES at DI.
    InString(Strings),
    /// `outs`: from the segment at SI to the port in DX.
    OutString(Strings, Segment),
    /// What has no operand in memory of a device.
    System(System),
}

/// What a CPU exits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the manuals'")]
pub enum System {
    Clts,
    Cpuid,
    Hlt,
    Invd,
    /// Of the page of this address.
    Invlpg(Memory),
    /// Writes the lower four bits of CR0, of which it cannot clear the first.
    Lmsw(StatusWord),
    Monitor,
    Mwait,
    Pause,
    Rdmsr,
    Rdpmc,
    Rdtsc,
    Rdtscp,
    /// Reads CR0.
    Smsw(StatusWord),
    Vmcall,
    Vmmcall,
    Wbinvd,
    Wbnoinvd,
    Wrmsr,
    Xsetbv,
    /// `mov` between a general register and a control register, by its number.
    ReadControl(u8, Register),
    WriteControl(u8, Register),
    /// The same of a debug register.
    ReadDebug(u8, Register),
    WriteDebug(u8, Register),
}

impl Operation {
    /// Whether it may have the prefix `lock`.
    pub(crate) const fn may_be_locked(&self) -> bool {
        match self {
            Self::Exchange { .. } => true,
            Self::ToMemory { arithmetic, .. } => {
                !matches!(arithmetic, Arithmetic::Cmp | Arithmetic::Test)
            }
            _ => false,
        }
    }
}
