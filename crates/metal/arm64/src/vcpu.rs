//! The registers of a vCPU, as values: in memory while they are not in the processor, and in a saved state.
//!
//! They are in one section, of kind [`STATE`]. What a guest could not have put there by its own instructions is refused
//! when they are loaded: a PSTATE of EL2, a breakpoint or a counter at EL2, a register that this machine has not. Most
//! registers take any value, since a guest writes them without a trap.

#[macro_use]
mod banked;
#[cfg(test)]
mod tests;
pub(crate) mod timer;

use mayfly_state::{Error, Kind, SectionReader, SectionWriter};

pub use banked::Banked;
pub use timer::Timer;

use crate::counters::{Counters, Offered};
use crate::debug::Debug;
use crate::inject::Exception;
use crate::kinds::Kinds;

/// The section of a vCPU, by its number.
pub const STATE: Kind = Kind::new("arm64-vcpu", 2);

/// The general registers of a guest.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// x0 to x30.
    pub x: [u64; 31],
    /// Where it goes on.
    pub pc: u64,
    /// Its PSTATE.
    pub pstate: u64,
}

impl Registers {
    /// Register `number`; 31 is zero.
    pub fn get(&self, number: u8) -> u64 {
        self.x.get(usize::from(number)).copied().unwrap_or(0)
    }

    /// Sets register `number`; 31 takes nothing.
    pub fn set(&mut self, number: u8, value: u64) {
        if let Some(register) = self.x.get_mut(usize::from(number)) {
            *register = value;
        }
    }
}

/// FPSR, FPCR, q0 to q31.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatingPoint {
    pub(crate) status: u64,
    pub(crate) control: u64,
    pub(crate) q: [u128; 32],
}

/// The registers that not every vCPU has, or uses. Those that each vCPU of some processors has are at the beginning.
#[repr(C)]
#[derive(Clone, Debug)]
pub(crate) struct Optional {
    /// Which of them this vCPU has, on one processor or another.
    pub(crate) has: Kinds,
    /// `VDISR_EL2`, which is the guest's `DISR_EL1`.
    pub(crate) error_record: u64,
    pub(crate) tpidr2: u64,
    pub(crate) physical_timer: Timer,
    pub(crate) keys: [u64; 10],
    pub(crate) debug: Debug,
    pub(crate) counters: Counters,
    /// What all processors have of them, once the vCPU has accessed one.
    pub(crate) offered: Offered,
}

/// All that is switched when another vCPU comes to a processor. What each switch touches is at the beginning, where pairs
/// of registers are stored and loaded with one instruction.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) banked: Banked,
    pub(crate) timer: Timer,
    /// `VMPIDR_EL2`: what the guest reads as its `MPIDR_EL1`.
    pub(crate) vmpidr: u64,
    /// `CNTVOFF_EL2`.
    pub(crate) timer_offset: u64,
    pub(crate) optional: Optional,
    pub(crate) floating_point: FloatingPoint,
}

/// `SCTLR_EL1` at reset: RES1 bits of ARMv8.0, MMU and caches off.
pub(crate) const SCTLR_RESET: u64 = 0x30d0_0800;

impl Context {
    /// As after a reset, of a vCPU that reads `vmpidr` as its `MPIDR_EL1`, whose virtual counter is `timer_offset` ticks
    /// behind, and that has these optional registers.
    pub fn new(vmpidr: u64, timer_offset: u64, has: Kinds) -> Self {
        Self {
            banked: Banked::new(SCTLR_RESET),
            optional: Optional {
                has,
                keys: [0; 10],
                error_record: 0,
                tpidr2: 0,
                physical_timer: Timer::default(),
                debug: Debug::default(),
                counters: Counters::default(),
                offered: Offered::default(),
            },
            floating_point: FloatingPoint { status: 0, control: 0, q: [0; 32] },
            timer: Timer::default(),
            vmpidr,
            timer_offset,
        }
    }

    /// As after a reset of the vCPU, which has the optional registers that its `machine` has.
    pub fn reset(&mut self, machine: Kinds) {
        *self = Self::new(self.vmpidr, self.timer_offset, machine);
    }

    /// When the virtual timer is due, in ticks of the physical counter, if it is on: `now`, or later.
    pub fn virtual_timer_due(&self, now: u64) -> Option<u64> {
        self.timer.due(self.timer_offset, now)
    }
}

/// What a vCPU takes before its next instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// An `SError` (`HCR_EL2.VSE`).
    pub error: bool,
    /// An exception, and the address for `FAR_EL1`.
    pub exception: Option<(Exception, u64)>,
}

/// What the processors of a machine allow the vCPUs that it loads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// Their performance counters, where they have some.
    pub counters: Option<Offered>,
    /// EL0 may be in `AArch32`: returning to it is legal. Where it is not, EL2 itself would take an exception.
    pub aarch32: bool,
    /// They have pointer authentication.
    pub keys: bool,
}

/// Kinds that a vCPU has because the machine's processors have them.
const OF_MACHINE: Kinds = Kinds::ERROR_RECORD.with(Kinds::TPIDR2);
/// Kinds that a vCPU has because it has used them.
const OF_VCPU: Kinds =
    Kinds::BREAKPOINTS.with(Kinds::PHYSICAL_TIMER).with(Kinds::COUNTERS).with(Kinds::KEYS);

/// The registers of a vCPU, where they are while it is off its processor.
#[derive(Debug)]
pub struct Vcpu<G, C> {
    /// The general ones.
    pub general: G,
    /// The others.
    pub context: C,
}

impl Vcpu<&Registers, &Context> {
    /// Writes them into a section of kind [`STATE`]. Its virtual counter is the machine's, and not among them.
    pub fn save(&self, owed: Owed, to: &mut SectionWriter<'_, '_>) {
        let Self { general, context } = self;
        to.u64(context.vmpidr);
        to.words(&general.x);
        to.u64(general.pc);
        to.u64(general.pstate);
        context.banked.save(to);
        to.u64(context.floating_point.status);
        to.u64(context.floating_point.control);
        for register in context.floating_point.q {
            to.u128(register);
        }
        context.timer.save(to);
        save_owed(owed, to);
        let Optional { has, keys, error_record, tpidr2, physical_timer, debug, counters, .. } =
            &context.optional;
        to.u32(has.among(OF_MACHINE.with(OF_VCPU)).bits());
        to.align();
        to.words(keys);
        to.u64(*error_record);
        to.u64(*tpidr2);
        physical_timer.save(to);
        debug.save(to);
        counters.save(to);
    }
}

impl Vcpu<&mut Registers, &mut Context> {
    /// Has them be what was saved: of a vCPU that was just made, with the same `MPIDR_EL1`. Returns what it takes before
    /// its next instruction.
    ///
    /// # Errors
    ///
    /// [`Error`] names a register that has what the guest of a machine like this could not have put there. The vCPU is to
    /// be reset before it runs.
    pub fn load(self, allowed: &Allowed, mut from: SectionReader<'_>) -> Result<Owed, Error> {
        let Self { general, context } = self;
        from.expect("MPIDR_EL1", context.vmpidr)?;
        from.words("x0 to x30", &mut general.x)?;
        general.pc = from.u64("pc")?;
        let pstate = from.u64("PSTATE")?;
        from.check("PSTATE", pstate, is_guests(pstate, allowed.aarch32))?;
        general.pstate = pstate;
        context.banked.load(&mut from)?;
        context.floating_point.status = from.u64("FPSR")?;
        context.floating_point.control = from.u64("FPCR")?;
        for registers in context.floating_point.q.chunks_mut(8) {
            let mut halves = [0; 16];
            from.words("q0 to q31", &mut halves)?;
            for (register, [low, high]) in registers.iter_mut().zip(halves.as_chunks().0) {
                *register = u128::from(*high) << 64 | u128::from(*low);
            }
        }
        context.timer = Timer::load(&mut from)?;
        let owed = load_owed(&mut from)?;
        let optional = &mut context.optional;
        let own = optional.has.among(OF_MACHINE.with(Kinds::BARRIERS).with(Kinds::DIFFERENT));
        let kinds = from.bits("kinds of registers", OF_MACHINE.with(OF_VCPU).bits())?;
        let has = Kinds::from_bits(kinds);
        let is_alike = has.among(OF_MACHINE) == own.among(OF_MACHINE)
            && (allowed.counters.is_some() || !has.has(Kinds::COUNTERS))
            && (allowed.keys || !has.has(Kinds::KEYS));
        from.check("kinds of registers", kinds.into(), is_alike)?;
        optional.has = own.with(has.among(OF_VCPU));
        from.align()?;
        from.words("keys", &mut optional.keys)?;
        optional.error_record = from.u64("DISR_EL1")?;
        optional.tpidr2 = from.u64("TPIDR2_EL0")?;
        optional.physical_timer = Timer::load(&mut from)?;
        optional.debug.load(&mut from)?;
        let mdscr = context.banked.mdscr();
        from.check("MDSCR_EL1", mdscr, optional.debug.allows(mdscr))?;
        optional.counters.load(&mut from, allowed.counters.as_ref())?;
        let uses = optional.has.has(Kinds::COUNTERS);
        optional.offered = allowed.counters.filter(|_| uses).unwrap_or_default();
        from.end()?;
        Ok(owed)
    }
}

/// A vCPU that is off its processor, between two instructions: for another one that goes on as it was.
#[derive(Clone, Debug)]
pub struct AtRest {
    /// Its general registers.
    pub general: Registers,
    /// The others.
    pub context: Context,
    /// What it takes before its next instruction.
    pub owed: Owed,
}

impl AtRest {
    /// Writes it into a section of kind [`STATE`].
    pub fn save(&self, to: &mut SectionWriter<'_, '_>) {
        Vcpu { general: &self.general, context: &self.context }.save(self.owed, to);
    }

    /// A vCPU that was just made with `context`.
    pub fn new(context: Context) -> Self {
        Self { general: Registers::default(), context, owed: Owed::default() }
    }

    /// Has this one, which was just made, be what was saved of one that was like it.
    ///
    /// # Errors
    ///
    /// As [`Vcpu::load`].
    pub fn load(&mut self, allowed: &Allowed, from: SectionReader<'_>) -> Result<(), Error> {
        let Self { general, context, owed } = self;
        *owed = Vcpu { general, context }.load(allowed, from)?;
        Ok(())
    }
}

/// `SPSR_EL2.M`: EL0, EL1 with either stack pointer, and EL0 in `AArch32`.
const MODE: u64 = 0x1f;
const EL0: u64 = 0;
const EL1T: u64 = 0b0100;
const EL1H: u64 = 0b0101;
const AARCH32_EL0: u64 = 0b1_0000;
/// The bits above 31 that a guest's PSTATE may have: PM, of `FEAT_EBEP`.
const HIGH: u64 = 1 << 32;

/// Whether a guest is in that state, and a return to it is legal.
fn is_guests(pstate: u64, aarch32: bool) -> bool {
    let mode = match pstate & MODE {
        EL0 | EL1T | EL1H => true,
        AARCH32_EL0 => aarch32,
        _ => false,
    };
    mode && pstate >> 32 & !(HIGH >> 32) == 0
}

const NOTHING: u8 = 0;
const UNDEFINED: u8 = 1;
const UNSUPPORTED: u8 = 2;
/// With whether it is of a fetch, a walk, a write.
const ABORT: u8 = 8;

fn save_owed(owed: Owed, to: &mut SectionWriter<'_, '_>) {
    to.flag(owed.error);
    let code = |exception| match exception {
        Exception::Undefined => UNDEFINED,
        Exception::UnsupportedAccess => UNSUPPORTED,
        Exception::ExternalAbort { fetch, walk, write } => {
            ABORT | u8::from(fetch) | u8::from(walk) << 1 | u8::from(write) << 2
        }
    };
    to.u8(owed.exception.map_or(NOTHING, |(exception, _)| code(exception)));
    to.u64(owed.exception.map_or(0, |(_, address)| address));
}

fn load_owed(from: &mut SectionReader<'_>) -> Result<Owed, Error> {
    let error = from.flag("SError")?;
    let code = from.u8("exception")?;
    let address = from.u64("exception's address")?;
    let exception = match code {
        NOTHING => {
            from.check("exception's address", address, address == 0)?;
            return Ok(Owed { error, exception: None });
        }
        UNDEFINED => Exception::Undefined,
        UNSUPPORTED => Exception::UnsupportedAccess,
        ABORT..16 => Exception::ExternalAbort {
            fetch: code & 1 != 0,
            walk: code & 2 != 0,
            write: code & 4 != 0,
        },
        _ => return Err(from.invalid("exception", code.into())),
    };
    Ok(Owed { error, exception: Some((exception, address)) })
}
