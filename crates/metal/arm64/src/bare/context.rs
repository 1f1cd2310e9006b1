//! The registers of a vCPU beside the general ones: those of EL1, floating point, keys, timers.
//!
//! They stay in the processor between two entries of one vCPU, and are saved when its thread gives the processor up.
//! Those that only some vCPUs have, or use, are [`Extras`]: a switch between two vCPUs without any looks at one byte. The
//! physical timer is trapped until the vCPU's first access to it, and switched from then on.

use core::arch::{asm, global_asm};
use core::cell::{Cell, UnsafeCell};

use super::common;
use super::timer::Timer;
use crate::errata::Errata;

macro_rules! banked {
    ($($field:ident $name:literal),* $(,)?) => {
        /// The registers of EL1 and EL0 that are a guest's alone.
        #[derive(Clone, Copy, Debug, Default)]
        struct Banked { $($field: u64,)* }

        impl Banked {
            fn save() -> Self {
                Self { $($field: crate::read_register!($name),)* }
            }

            /// # Safety
            ///
            /// No guest runs, and the next one that does is whose registers these are.
            unsafe fn restore(&self) {
                // SAFETY: EL2 uses none of them.
                unsafe { $(super::write_register_alone!($name, self.$field);)* }
            }
        }
    };
}

banked! {
    sctlr "sctlr_el1",
    cpacr "cpacr_el1",
    ttbr0 "ttbr0_el1",
    ttbr1 "ttbr1_el1",
    tcr "tcr_el1",
    esr "esr_el1",
    afsr0 "afsr0_el1",
    afsr1 "afsr1_el1",
    far "far_el1",
    mair "mair_el1",
    amair "amair_el1",
    vbar "vbar_el1",
    contextidr "contextidr_el1",
    cntkctl "cntkctl_el1",
    par "par_el1",
    tpidr_el0 "tpidr_el0",
    tpidrro "tpidrro_el0",
    tpidr_el1 "tpidr_el1",
    sp_el0 "sp_el0",
    sp_el1 "sp_el1",
    elr "elr_el1",
    spsr "spsr_el1",
    csselr "csselr_el1",
    mdscr "mdscr_el1",
}

/// The keys of pointer authentication, by number: assemblers for ARMv8.0 do not know the names. (`APIA`, `APIB`,
/// `APDA`, `APDB`, `APGA`, each in two halves.)
macro_rules! keys {
    ($($index:literal $name:literal),* $(,)?) => {
        fn save_keys() -> [u64; 10] {
            [$(crate::read_register!($name)),*]
        }

        /// # Safety
        ///
        /// As [`Banked::restore`]; the processor has the registers.
        unsafe fn restore_keys(keys: &[u64; 10]) {
            // SAFETY: EL2 is built without pointer authentication.
            unsafe { $(super::write_register_alone!($name, keys[$index]);)* }
        }
    };
}

keys! {
    0 "s3_0_c2_c1_0", 1 "s3_0_c2_c1_1", 2 "s3_0_c2_c1_2", 3 "s3_0_c2_c1_3",
    4 "s3_0_c2_c2_0", 5 "s3_0_c2_c2_1", 6 "s3_0_c2_c2_2", 7 "s3_0_c2_c2_3",
    8 "s3_0_c2_c3_0", 9 "s3_0_c2_c3_1",
}

/// q0 to q31, FPSR, FPCR.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
struct FloatingPoint {
    q: [u128; 32],
    status: u64,
    control: u64,
}

/// The registers of a vCPU, in memory or in the processor that its thread runs on.
///
/// A `RefCell` would be looked at twice in each switch, and nothing here calls anything that could come back.
#[derive(Debug)]
pub struct Resident {
    context: UnsafeCell<Context>,
    is_loaded: Cell<bool>,
}

impl Resident {
    /// Those of a vCPU that reads `affinity` as its own, and whose virtual counter is `timer_offset` ticks behind.
    pub fn new(affinity: u64, timer_offset: u64) -> Self {
        // RES1, and no more than its affinity.
        let vmpidr = 1 << 31 | affinity;
        let context = Context::new(vmpidr, timer_offset, super::cpu::has_pointer_authentication());
        Self { context: UnsafeCell::new(context), is_loaded: Cell::new(false) }
    }

    fn context(&self) -> &Context {
        // SAFETY: one thread has this, for it is not `Sync`; and the only other references are those of `context_mut`,
        // each of which is gone when the call is over that it was made for.
        unsafe { &*self.context.get() }
    }

    #[expect(clippy::mut_from_ref, reason = "one thread has this, and holds one at a time")]
    fn context_mut(&self) -> &mut Context {
        // SAFETY: as above; it is private, and no caller holds one across a call that makes another.
        unsafe { &mut *self.context.get() }
    }

    /// Takes them out of the processor: before this thread gives the processor up.
    pub fn put(&self) {
        if self.is_loaded.take() {
            self.context_mut().save();
        }
    }

    /// When the virtual timer is due, in ticks of the physical counter, if it is on. After [`Resident::put`].
    pub fn virtual_timer_due(&self) -> Option<u64> {
        let context = self.context();
        context.timer.due(context.timer_offset)
    }

    /// The same of the physical timer.
    pub fn physical_timer_due(&self) -> Option<u64> {
        self.context().physical_timer.due(0)
    }

    /// The guest's first access to its physical timer has trapped, and is to be made again. The registers are in the
    /// processor.
    pub(super) fn use_physical_timer(&self) {
        let context = self.context_mut();
        context.extras = context.extras.with(Extras::PHYSICAL_TIMER);
        context.physical_timer.give_physical();
    }

    pub(super) fn reset(&self) {
        self.put();
        self.context_mut().reset();
    }

    /// Puts them into the processor, where they are not.
    pub(super) fn load(&self) {
        self.is_loaded.set(true);
        // SAFETY: the registers of the last vCPU were saved when its thread gave the processor up.
        unsafe { self.context().restore() };
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded.get()
    }

    pub(super) fn has_keys(&self) -> bool {
        self.context().extras.has(Extras::KEYS)
    }
}

/// What not every vCPU has, or uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extras(u8);

impl Extras {
    /// Keeps loads of devices and reads of `PAR_EL1` apart, where they may stop the processor.
    fn order(self) {
        if self.has(Self::BARRIERS) {
            // SAFETY: a barrier.
            unsafe { asm!("dmb sy", options(nostack)) };
        }
    }

    const KEYS: Self = Self(1);
    const PHYSICAL_TIMER: Self = Self(2);
    /// Barriers about reads of `PAR_EL1`.
    const BARRIERS: Self = Self(4);

    fn new(has_keys: bool) -> Self {
        let keys = if has_keys { Self::KEYS } else { Self(0) };
        let needs_barriers = common::errata().has(Errata::PAR_BARRIERS);
        if needs_barriers { keys.with(Self::BARRIERS) } else { keys }
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// All that is switched when another vCPU comes to a processor.
#[derive(Clone, Debug)]
pub(super) struct Context {
    banked: Banked,
    keys: [u64; 10],
    floating_point: FloatingPoint,
    pub(super) timer: Timer,
    physical_timer: Timer,
    /// `VMPIDR_EL2`: what the guest reads as its `MPIDR_EL1`.
    pub(super) vmpidr: u64,
    /// `CNTVOFF_EL2`.
    pub(super) timer_offset: u64,
    extras: Extras,
}

/// `SCTLR_EL1` at reset: RES1 bits of ARMv8.0, MMU and caches off.
pub(super) const SCTLR_RESET: u64 = 0x30d0_0800;

impl Context {
    pub(super) fn new(vmpidr: u64, timer_offset: u64, has_keys: bool) -> Self {
        Self {
            banked: Banked { sctlr: SCTLR_RESET, ..Banked::default() },
            keys: [0; 10],
            floating_point: FloatingPoint { q: [0; 32], status: 0, control: 0 },
            timer: Timer::default(),
            physical_timer: Timer::default(),
            vmpidr,
            timer_offset,
            extras: Extras::new(has_keys),
        }
    }

    /// As after a reset of the vCPU.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.vmpidr, self.timer_offset, self.extras.has(Extras::KEYS));
    }

    /// Takes the registers out of the processor; its timers stop.
    pub(super) fn save(&mut self) {
        if self.extras == Extras(0) {
            self.save_without_extras();
        } else {
            self.save_with_extras();
        }
    }

    #[inline]
    fn save_without_extras(&mut self) {
        self.banked = Banked::save();
        // SAFETY: saves to memory of that size, and changes nothing.
        unsafe { arm64_save_floating_point(&raw mut self.floating_point) };
        self.timer = Timer::take_virtual();
    }

    #[inline(never)]
    fn save_with_extras(&mut self) {
        self.extras.order();
        self.save_without_extras();
        self.extras.order();
        if self.extras.has(Extras::KEYS) {
            self.keys = save_keys();
        }
        if self.extras.has(Extras::PHYSICAL_TIMER) {
            self.physical_timer = Timer::take_physical();
        }
    }

    /// # Safety
    ///
    /// As [`Context::restore`].
    #[inline(never)]
    unsafe fn restore_extras(&self) {
        if self.extras.has(Extras::KEYS) {
            // SAFETY: the caller's promise; the processor has them.
            unsafe { restore_keys(&self.keys) };
        }
        if self.extras.has(Extras::PHYSICAL_TIMER) {
            self.physical_timer.give_physical();
        }
    }

    /// Puts the registers into the processor.
    ///
    /// # Safety
    ///
    /// No guest's are there that were not saved, and the next guest that runs here is this one.
    pub(super) unsafe fn restore(&self) {
        // SAFETY: the caller's promise; EL2 uses none of them.
        unsafe {
            crate::write_register!("vmpidr_el2", self.vmpidr);
            self.banked.restore();
            if self.extras != Extras(0) {
                self.restore_extras();
            }
            arm64_restore_floating_point(&raw const self.floating_point);
            self.timer.give_virtual(self.timer_offset);
            asm!("isb", options(nostack));
        }
    }
}

unsafe extern "C" {
    fn arm64_save_floating_point(to: *mut FloatingPoint);
    fn arm64_restore_floating_point(from: *const FloatingPoint);
}

global_asm!(
    r#"
    .section .text.arm64_floating_point, "ax"
    .arch_extension fp
    .arch_extension simd
    .macro each instruction
    \instruction q0, q1, [x0, #0]
    \instruction q2, q3, [x0, #32]
    \instruction q4, q5, [x0, #64]
    \instruction q6, q7, [x0, #96]
    \instruction q8, q9, [x0, #128]
    \instruction q10, q11, [x0, #160]
    \instruction q12, q13, [x0, #192]
    \instruction q14, q15, [x0, #224]
    \instruction q16, q17, [x0, #256]
    \instruction q18, q19, [x0, #288]
    \instruction q20, q21, [x0, #320]
    \instruction q22, q23, [x0, #352]
    \instruction q24, q25, [x0, #384]
    \instruction q26, q27, [x0, #416]
    \instruction q28, q29, [x0, #448]
    \instruction q30, q31, [x0, #480]
    .endm
    .global arm64_save_floating_point
arm64_save_floating_point:
    each stp
    mrs x1, fpsr
    mrs x2, fpcr
    add x0, x0, #512
    stp x1, x2, [x0]
    ret
    .global arm64_restore_floating_point
arm64_restore_floating_point:
    each ldp
    add x0, x0, #512
    ldp x1, x2, [x0]
    msr fpsr, x1
    msr fpcr, x2
    ret
    .arch_extension nosimd
    .arch_extension nofp
    "#
);
