//! The instructions that read and write each register, as code of a turn; and a turn.

use core::arch::asm;
use core::cell::UnsafeCell;

use mayfly_arm64_registers::sysreg::SysReg;

use crate::clock;
use crate::entry::{Turn, census_nothing, census_turn};

/// `MRS` and `MSR` can name so many.
pub(crate) const REGISTERS: usize = 1 << 15;

const BR_X30: u32 = 0xd61f_03c0;

struct Code(UnsafeCell<[[u32; 4]; REGISTERS]>);

// SAFETY: the guest has one vCPU.
unsafe impl Sync for Code {}

static CODE: Code = Code(UnsafeCell::new([[0; 4]; REGISTERS]));

/// Writes the code.
pub(crate) fn prepare() {
    // SAFETY: nothing else has it yet.
    let code = unsafe { &mut *CODE.0.get() };
    for (words, register) in code.iter_mut().zip(SysReg::all()) {
        *words = [register.write_word(0), BR_X30, register.read_word(0), BR_X30];
    }
    // SAFETY: what was written is fetched anew.
    unsafe { asm!("dsb sy", "ic iallu", "dsb sy", "isb", options(nostack)) };
}

/// Code that does nothing.
pub(crate) fn nothing() -> *const u32 {
    &raw const census_nothing
}

/// Code that writes x0 to register `number`.
pub(crate) fn write(number: usize) -> *const u32 {
    // SAFETY: it was prepared, and is not changed any more.
    unsafe { (&raw const (*CODE.0.get())[number]).cast() }
}

/// Code that reads register `number` to x0.
pub(crate) fn read(number: usize) -> *const u32 {
    write(number).wrapping_add(2)
}

/// At which level a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    El0,
    El1,
}

impl core::fmt::Display for Level {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::El0 => "EL0",
            Self::El1 => "EL1",
        })
    }
}

/// How a VM waits in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    None,
    /// In `WFI`, until the counter says so.
    Asleep(u64),
    /// Busy, with its timer off.
    Busy(u64),
}

impl Wait {
    /// Until `until`, for a turn of a register that is `timer`'s or not.
    pub(crate) fn until(until: u64, timer: bool) -> Self {
        if timer { Self::Busy(until) } else { Self::Asleep(until) }
    }
}

/// What came of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// x0 at its end.
    pub(crate) value: u64,
    pub(crate) first_undefined: bool,
    pub(crate) second_undefined: bool,
    /// When it ended.
    pub(crate) ended: u64,
}

impl Outcome {
    /// The value, if the second code is defined.
    pub(crate) fn read(self) -> Option<u64> {
        (!self.second_undefined).then_some(self.value)
    }
}

/// Takes a turn: executes code, waits, and executes code, each with a value in x0.
pub(crate) fn turn(
    level: Level,
    first: (*const u32, u64),
    wait: Wait,
    second: (*const u32, u64),
) -> Outcome {
    let offset = clock::offset();
    let (until, sleeps) = match wait {
        Wait::None => (0, 1),
        Wait::Asleep(until) => (until - offset, 1),
        Wait::Busy(until) => (until - offset, 0),
    };
    if let Wait::Asleep(_) = wait {
        clock::wake_at(until);
    } else {
        clock::stop();
    }
    let mut turn = Turn {
        first: first.0,
        before: first.1,
        until,
        second: second.0,
        after: second.1,
        sleeps,
        level: u64::from(level == Level::El1),
        undefined: 0,
        ended: 0,
    };
    // SAFETY: the code that is executed ends as it must, and what it does to this VM is put back. What exceptions leave
    // is the same before each turn, so that the registers that they write do not differ from one turn to the next.
    unsafe {
        asm!(
            "msr elr_el1, {0}", "msr spsr_el1, {1}", "msr esr_el1, {0}", "msr far_el1, {0}",
            in(reg) 0_u64, in(reg) 0x3c5_u64, options(nomem, nostack),
        );
        census_turn(&raw mut turn);
    }
    Outcome {
        value: turn.after,
        first_undefined: turn.undefined & 1 != 0,
        second_undefined: turn.undefined & 2 != 0,
        ended: turn.ended + offset,
    }
}
