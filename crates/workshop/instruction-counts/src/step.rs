//! Counting by single steps.
//!
//! A piece of work is begun and ended by a `BRK`. In between the processor takes an exception after each instruction
//! (DDI 0487, "Software Step exceptions"), and the handler looks at the next instruction: which code it belongs to, and
//! what it is. So the counts are exact, and the same each time.
//!
//! An instruction belongs to the core, unless it is in one of the sections that the [linker script](../link.ld) sets
//! apart (allocator, platform, host memory, device, guest), or in code that those call.
//!
//! An exception clears the exclusive monitor, so a store-exclusive that is stepped to never succeeds. The handler does
//! such loads and stores itself; no other processor can come between the two.

use core::arch::asm;
use core::cell::UnsafeCell;

/// Immediates of the `BRK`s.
const BEGIN: u64 = 1;
const END: u64 = 2;

/// Where instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Core,
    Allocator,
    Platform,
    Memory,
    Device,
    Guest,
}

const PARTIES: usize = 6;

/// Instructions of code, at most.
const PLACES: usize = 1 << 16;

/// What a piece of work took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    instructions: [u64; PARTIES],
    /// `DMB` and `DSB` that the core has executed.
    pub(crate) barriers: u64,
    /// Bytes of stack that were in use at most, beyond those at the beginning, in any code.
    pub(crate) stack: u64,
}

impl Counts {
    pub(crate) fn of(&self, whose: Whose) -> u64 {
        self.instructions[whose as usize]
    }
}

/// Runs `work`, and says what it took, a few instructions of the call of it included.
pub(crate) fn count<T>(work: impl FnOnce() -> T) -> (T, Counts) {
    begin();
    let result = work();
    end();
    (result, counts())
}

/// Begins to count.
#[expect(clippy::inline_always, reason = "a call would be counted")]
#[inline(always)]
pub(crate) fn begin() {
    // SAFETY: the handler goes on behind it, and has changed no register.
    unsafe { asm!("brk #{}", const BEGIN) };
}

/// Ends it.
#[expect(clippy::inline_always, reason = "as above")]
#[inline(always)]
pub(crate) fn end() {
    // SAFETY: as above.
    unsafe { asm!("brk #{}", const END) };
}

/// What was counted between the last two.
pub(crate) fn counts() -> Counts {
    // SAFETY: the handler, which alone changes it, does not run: nothing is stepped through now.
    unsafe { &*STATE.0.get() }.counts
}

/// The addresses of the core's instructions that were executed between the last two, and how often each was.
pub(crate) fn visits() -> impl Iterator<Item = (u64, u32)> {
    // SAFETY: as above.
    let visits = unsafe { &(*STATE.0.get()).visits };
    let addresses = (code_start()..).step_by(4);
    addresses.zip(visits.iter().copied()).filter(|&(_, times)| times > 0)
}

fn code_start() -> u64 {
    unsafe extern "C" {
        static allocator_start: u8;
    }
    (&raw const allocator_start).addr() as u64
}

/// What the vector saves.
#[repr(C)]
pub(crate) struct Frame {
    registers: [u64; 31],
    elr: u64,
    spsr: u64,
    _padding: u64,
}

struct State {
    counts: Counts,
    stack: u64,
    /// The code that is being called, and where the core goes on, with which stack.
    called: Option<(Whose, u64, u64)>,
    /// How often the core's instructions were executed, each.
    visits: [u32; PLACES],
}

struct Shared(UnsafeCell<State>);

// SAFETY: there is one processor, and the handler is not interrupted.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(State {
    counts: Counts { instructions: [0; PARTIES], barriers: 0, stack: 0 },
    stack: 0,
    called: None,
    visits: [0; PLACES],
}));

const STEPPED: u64 = 0x33;
const BRK: u64 = 0x3c;

/// `SPSR_EL2.SS` and `SPSR_EL2.D`.
const SINGLE_STEP: u64 = 1 << 21;
const DEBUG_MASKED: u64 = 1 << 9;

/// A synchronous exception.
pub(crate) extern "C" fn taken(frame: &mut Frame) {
    let syndrome = esr();
    let stack = core::ptr::from_mut(frame).addr() as u64 + size_of::<Frame>() as u64;
    // SAFETY: as for `Shared`; no caller holds a reference while instructions are stepped through.
    let state = unsafe { &mut *STATE.0.get() };
    match (syndrome >> 26, syndrome & 0xffff) {
        (STEPPED, _) => {}
        (BRK, BEGIN) => {
            frame.elr += 4;
            (state.counts, state.stack, state.called) = (Counts::default(), stack, None);
            state.visits.fill(0);
            set_stepping(true);
        }
        (BRK, END) => {
            frame.elr += 4;
            frame.spsr &= !SINGLE_STEP;
            set_stepping(false);
            return;
        }
        _ => {
            panic!("an exception at {:#x}: syndrome {syndrome:#x}, address {:#x}", frame.elr, far())
        }
    }
    loop {
        // SAFETY: the processor is about to fetch it.
        let instruction = unsafe { (frame.elr as *const u32).read() };
        if is_brk(instruction) {
            break;
        }
        state.account(frame, instruction, stack);
        if !frame.execute_exclusive(instruction, stack) {
            break;
        }
    }
    frame.spsr = (frame.spsr | SINGLE_STEP) & !DEBUG_MASKED;
}

impl State {
    fn account(&mut self, frame: &Frame, instruction: u32, stack: u64) {
        self.counts.stack = self.counts.stack.max(self.stack.saturating_sub(stack));
        if self.called.is_some_and(|(_, back, was)| frame.elr == back && stack == was) {
            self.called = None;
        }
        let whose = if let Some((whose, ..)) = self.called {
            whose
        } else {
            let whose = whose(frame.elr);
            // Where the counting began there may be no call to return from.
            if whose != Whose::Core && self.counts.of(Whose::Core) > 0 {
                self.called = Some((whose, frame.registers[30], stack));
            }
            whose
        };
        self.counts.instructions[whose as usize] += 1;
        if whose == Whose::Core {
            self.visits[(frame.elr - code_start()) as usize / 4] += 1;
            self.counts.barriers += u64::from(is_barrier(instruction));
        }
    }
}

fn whose(address: u64) -> Whose {
    unsafe extern "C" {
        static allocator_start: u8;
        static platform_start: u8;
        static memory_start: u8;
        static device_start: u8;
        static guest_start: u8;
        static outside_end: u8;
    }
    let starts = [
        (&raw const allocator_start, Whose::Allocator),
        (&raw const platform_start, Whose::Platform),
        (&raw const memory_start, Whose::Memory),
        (&raw const device_start, Whose::Device),
        (&raw const guest_start, Whose::Guest),
        (&raw const outside_end, Whose::Core),
    ];
    let begun = starts.iter().rev().find(|(start, _)| address >= start.addr() as u64);
    begun.map_or(Whose::Core, |&(_, whose)| whose)
}

fn is_brk(instruction: u32) -> bool {
    instruction & 0xffe0_001f == 0xd420_0000
}

/// `DMB` or `DSB`, of whatever domain and kind.
fn is_barrier(instruction: u32) -> bool {
    matches!(instruction & 0xffff_f0ff, 0xd503_30bf | 0xd503_309f)
}

impl Frame {
    /// Does a load or store that is exclusive ("Load/store exclusive register" of one register). Returns whether it was
    /// one.
    fn execute_exclusive(&mut self, instruction: u32, stack: u64) -> bool {
        if instruction & 0x3fa0_0000 != 0x0800_0000 {
            return false;
        }
        let field = |shift: u32| ((instruction >> shift) & 31) as usize;
        let is_load = (instruction >> 22) & 1 == 1;
        let (size, status, base, value) = (instruction >> 30, field(16), field(5), field(0));
        let address = if base == 31 { stack } else { self.registers[base] };
        let register = |frame: &Self, n: usize| if n == 31 { 0 } else { frame.registers[n] };
        // SAFETY: the program is about to make this access, and no other processor runs.
        unsafe {
            if is_load {
                let loaded = match size {
                    0 => u64::from((address as *const u8).read_volatile()),
                    1 => u64::from((address as *const u16).read_volatile()),
                    2 => u64::from((address as *const u32).read_volatile()),
                    _ => (address as *const u64).read_volatile(),
                };
                if value != 31 {
                    self.registers[value] = loaded;
                }
            } else {
                let stored = register(self, value);
                match size {
                    0 => (address as *mut u8).write_volatile(stored as u8),
                    1 => (address as *mut u16).write_volatile(stored as u16),
                    2 => (address as *mut u32).write_volatile(stored as u32),
                    _ => (address as *mut u64).write_volatile(stored),
                }
                if status != 31 {
                    self.registers[status] = 0;
                }
            }
        }
        self.elr += 4;
        true
    }
}

fn esr() -> u64 {
    let syndrome;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, esr_el2", out(reg) syndrome, options(nomem, nostack)) };
    syndrome
}

fn far() -> u64 {
    let address;
    // SAFETY: as above.
    unsafe { asm!("mrs {}, far_el2", out(reg) address, options(nomem, nostack)) };
    address
}

/// `MDSCR_EL1.SS`, beside KDE, which stays set.
fn set_stepping(on: bool) {
    let value = (1_u64 << 13) | u64::from(on);
    // SAFETY: nothing is stepped through here, where debug exceptions are masked.
    unsafe { asm!("msr mdscr_el1, {}", "isb", in(reg) value, options(nostack)) };
}
