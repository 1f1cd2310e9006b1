//! The registers of a vCPU beside the general ones: those of EL1, floating point, the virtual timer, and those that not
//! every vCPU has, or uses ([`optional`](super::optional)).
//!
//! They stay in the processor between two entries of one vCPU, and are saved when its thread gives the processor up.

use core::arch::{asm, global_asm};
use core::cell::{Cell, UnsafeCell};

use super::optional;
use super::{cpu, error};
use crate::counters::{self, Offered};
use crate::debug::{Debug, Place};
use crate::kinds::Kinds;
use crate::vcpu::{Banked, Context, FloatingPoint, Timer};

/// In pairs, by two general registers alone: a caller has to save none of its own for them.
macro_rules! banked {
    ($($one:ident $name:literal $number:tt $other:ident $other_name:literal $other_number:tt)*) => {
        #[inline]
        fn take_banked(banked: &mut Banked) {
            // SAFETY: reads registers that each processor has, and stores as many words as there are.
            unsafe {
                asm!(
                    $(
                        concat!("mrs {one}, ", $name),
                        concat!("mrs {other}, ", $other_name),
                        "stp {one}, {other}, [{at}], #16",
                    )*
                    at = inout(reg) banked.values.as_mut_ptr() => _,
                    one = out(reg) _,
                    other = out(reg) _,
                    options(nostack),
                );
            }
        }

        /// # Safety
        ///
        /// No guest runs, and the next one that does is whose registers these are.
        #[inline]
        unsafe fn give_banked(banked: &Banked) {
            // SAFETY: loads as many words as there are. EL2 uses none of the registers.
            unsafe {
                asm!(
                    $(
                        "ldp {one}, {other}, [{at}], #16",
                        concat!("msr ", $name, ", {one}"),
                        concat!("msr ", $other_name, ", {other}"),
                    )*
                    at = inout(reg) banked.values.as_ptr() => _,
                    one = out(reg) _,
                    other = out(reg) _,
                    options(nostack),
                );
            }
        }
    };
}

with_banked!(banked);

/// The registers of a vCPU, in memory or in the processor that its thread runs on.
///
/// A `RefCell` would be looked at twice in each switch, and nothing here calls anything that could come back.
#[repr(C)]
#[derive(Debug)]
pub struct Resident {
    context: UnsafeCell<Context>,
    is_loaded: Cell<bool>,
    /// It is to take an `SError`: `HCR_EL2.VSE`, while it is not in the processor.
    error: Cell<bool>,
}

impl Resident {
    /// Those of a vCPU that reads `affinity` as its own, and whose virtual counter is `timer_offset` ticks behind.
    pub fn new(affinity: u64, timer_offset: u64) -> Self {
        let context = fresh(affinity, timer_offset);
        Self {
            context: UnsafeCell::new(context),
            is_loaded: Cell::new(false),
            error: Cell::new(false),
        }
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
            let context = self.context_mut();
            let has = context.optional.has;
            // Apart, so that a vCPU that has no optional registers and has made no error pays for two tests, and one that
            // has those of each vCPU for no call.
            if has.is_empty() {
                self.take_error(false);
                context.save();
            } else if has.are_of_each() {
                self.take_error(has.has(Kinds::ERROR_RECORD));
                context.optional.save_of_each(has);
                context.save();
            } else {
                if context.optional.save() {
                    self.error.set(true);
                }
                // PAR_EL1 is read in between: erratum 1508412 of Cortex-A77.
                context.optional.order();
                context.save();
                context.optional.order();
            }
        }
    }

    /// Takes a pending error, which is its own.
    #[inline]
    fn take_error(&self, has_record: bool) {
        if error::take(has_record) {
            self.error.set(true);
        }
    }

    /// Whether it is to take an `SError`.
    pub(super) fn owes_error(&self) -> bool {
        self.error.get()
    }

    /// Has it take an `SError`, or no longer.
    pub(super) fn set_error(&self, error: bool) {
        self.error.set(error);
    }

    /// Its breakpoints and watchpoints.
    pub(super) fn debug(&self) -> &Debug {
        self.context().optional.debug()
    }

    /// Changes one of them, while it is in the processor.
    pub(super) fn set_debug(&self, place: Place, value: u64) {
        self.context_mut().optional.set_debug(place, value);
    }

    /// Changes what does not depend on whether they are in the processor.
    pub(super) fn change_debug<T>(&self, change: impl FnOnce(&mut Debug) -> T) -> T {
        change(self.context_mut().optional.debug_mut())
    }

    /// When the virtual timer is due, in ticks of the physical counter, if it is on: `now`, or later. After
    /// [`Resident::put`].
    pub fn virtual_timer_due(&self, now: u64) -> Option<u64> {
        let context = self.context();
        context.virtual_timer_due(now)
    }

    /// The same of the physical timer.
    pub fn physical_timer_due(&self, now: u64) -> Option<u64> {
        self.context().optional.physical_timer.due(0, now)
    }

    /// The guest's first access to its physical timer has trapped, and is to be made again. The registers are in the
    /// processor.
    pub(super) fn use_physical_timer(&self) {
        self.context_mut().optional.use_physical_timer();
    }

    /// The guest's first use of a key of pointer authentication has trapped, and is to be made again. The registers are in
    /// the processor.
    pub(super) fn use_keys(&self) {
        self.context_mut().optional.use_keys();
    }

    /// Answers an access to its performance counters; `None` where it is undefined. The registers are in the processor.
    pub(super) fn count(
        &self,
        place: counters::Place,
        written: Option<u64>,
        at_el0: bool,
        offered: &Offered,
    ) -> Option<u64> {
        self.context_mut().optional.count(place, written, at_el0, offered)
    }

    /// The level of the interrupt of its performance counters, if it uses some.
    pub fn counters_line(&self) -> Option<bool> {
        self.context_mut().optional.counters_line(self.is_loaded.get())
    }

    /// What they are; none, if they are in the processor.
    pub(super) fn at_rest(&self) -> Option<Context> {
        (!self.is_loaded.get()).then(|| self.context().clone())
    }

    /// Has them be as another vCPU's were, but for the vCPU's own affinity and the offset of its virtual counter. They are
    /// not in the processor.
    pub(super) fn go_on(&self, context: &Context) {
        let own = self.context_mut();
        let Context { vmpidr, timer_offset, .. } = *own;
        own.clone_from(context);
        (own.vmpidr, own.timer_offset) = (vmpidr, timer_offset);
    }

    /// Whether the vCPU has used its physical timer, and whether it uses performance counters: then the virtual GIC is to
    /// see their lines.
    pub fn uses(&self) -> (bool, bool) {
        let has = self.context().optional.has;
        (has.has(Kinds::PHYSICAL_TIMER), has.has(Kinds::COUNTERS))
    }

    pub(super) fn reset(&self) {
        self.put();
        self.error.set(false);
        self.context_mut().reset(optional::of_all());
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
        self.context().optional.has_keys()
    }
}

/// The registers of a vCPU that was just made.
pub(super) fn fresh(affinity: u64, timer_offset: u64) -> Context {
    // RES1, and no more than its affinity.
    let vmpidr = 1 << 31 | affinity;
    Context::new(vmpidr, timer_offset, optional::of_all())
}

/// Turns off what breakpoints and watchpoints a guest could meet here that are no vCPU's: all that this processor has,
/// which may be more than guests see, and which are as firmware left them.
pub fn clear_debug() {
    // SAFETY: no guest runs here.
    unsafe { optional::clear(&cpu::ids()) };
}

impl Context {
    /// Takes the registers out of the processor, but the optional ones; its timer stops.
    fn save(&mut self) {
        take_banked(&mut self.banked);
        // SAFETY: saves to memory of that size, and changes nothing.
        unsafe { arm64_save_floating_point(&raw mut self.floating_point) };
        self.timer = Timer::take_virtual();
    }

    /// Puts the registers into the processor. The ERET is the barrier that the guest needs.
    ///
    /// # Safety
    ///
    /// No guest's are there that were not saved, and the next guest that runs here is this one.
    pub(super) unsafe fn restore(&self) {
        // SAFETY: the caller's promise; EL2 uses none of them.
        unsafe {
            crate::write_register!("vmpidr_el2", self.vmpidr);
            give_banked(&self.banked);
            let has = self.optional.has;
            if !has.is_empty() {
                if has.are_of_each() {
                    self.optional.restore_of_each(has);
                } else {
                    self.optional.restore();
                }
            }
            arm64_restore_floating_point(&raw const self.floating_point);
            self.timer.give_virtual(self.timer_offset);
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
    mrs x1, fpsr
    mrs x2, fpcr
    stp x1, x2, [x0], #16
    each stp
    ret
    .global arm64_restore_floating_point
arm64_restore_floating_point:
    ldp x1, x2, [x0], #16
    msr fpsr, x1
    msr fpcr, x2
    each ldp
    ret
    .arch_extension nosimd
    .arch_extension nofp
    "#
);
