//! The registers that not every vCPU has, or uses: keys of pointer authentication, the record of deferred errors,
//! `TPIDR2_EL0`, the physical timer, breakpoints and watchpoints, performance counters. A vCPU that has none of them pays
//! one test for that, when it is switched; one that has no more than each vCPU has pays three.
//!
//! The record of deferred errors and `TPIDR2_EL0` are every vCPU's where a processor of the machine has them. Processors may
//! differ in them: [`Kinds::on`] says what is switched on this one. The keys are trapped until the vCPU's first access to
//! one, or its first instruction that uses one, and are switched from then on. So is the physical timer. Breakpoints and watchpoints are those of a vCPU that has enabled one: as many as every processor
//! has. Each write comes out to EL2, so they need not be read back: they are loaded with the vCPU, and are turned off when
//! it leaves the processor, so that no other vCPU meets them. Performance counters
//! are those of a vCPU that has enabled one.

use core::arch::{asm, global_asm};

use super::{common, counting, cpu, error};
use crate::controls::Ids;
use crate::counters::{self, Offered};
use crate::debug::{Debug, Pair, Place};
use crate::errata::Errata;
use crate::kinds::Kinds;
use crate::vcpu::{Optional, Timer};

/// The keys of pointer authentication, by number: assemblers for ARMv8.0 do not know the names. (`APIA`, `APIB`,
/// `APDA`, `APDB`, `APGA`, each in two halves.)
macro_rules! keys {
    ($($index:literal $name:literal),* $(,)?) => {
        fn save_keys() -> [u64; 10] {
            [$(crate::read_register!($name)),*]
        }

        /// # Safety
        ///
        /// As [`Optional::restore`]; the processor has the registers.
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

/// Those that each vCPU has, on one processor or another.
pub(super) fn of_all() -> Kinds {
    let has_barriers = common::errata().has(Errata::PAR_BARRIERS);
    common::kinds().with(if has_barriers { Kinds::BARRIERS } else { Kinds::NONE })
}

impl Optional {
    pub(super) fn has_keys(&self) -> bool {
        self.has.has(Kinds::KEYS)
    }

    /// Has this vCPU's keys in the processor from now on, while the vCPU is there, which it is.
    pub(super) fn use_keys(&mut self) {
        self.has = self.has.with(Kinds::KEYS);
        // SAFETY: they are trapped where processors have none, so that these have them. The guest has just come out.
        unsafe { restore_keys(&self.keys) };
    }

    pub(super) fn debug(&self) -> &Debug {
        &self.debug
    }

    pub(super) fn debug_mut(&mut self) -> &mut Debug {
        &mut self.debug
    }

    /// Writes `value` to `place`, here and in the processor. A kernel that only clears them when it boots has none.
    pub(super) fn set_debug(&mut self, place: Place, value: u64) {
        self.debug.set(place, value);
        if self.debug.enables(place) {
            self.has = self.has.with(Kinds::BREAKPOINTS);
        }
        if self.has.has(Kinds::BREAKPOINTS) {
            // SAFETY: they are in the processor, since its guest has just come out.
            unsafe { load(&self.debug) };
        }
    }

    /// Has this vCPU's physical timer in the processor from now on, while the vCPU is there, which it is.
    pub(super) fn use_physical_timer(&mut self) {
        self.has = self.has.with(Kinds::PHYSICAL_TIMER);
        self.physical_timer.give_physical();
    }

    /// Which of them are switched on this processor.
    fn here(&self) -> Kinds {
        if self.has.has(Kinds::DIFFERENT) { self.has.on(cpu::kinds()) } else { self.has }
    }

    /// Reads `place`, or writes to it, of this vCPU's counters, which is in the processor. `None` where that is undefined.
    pub(super) fn count(
        &mut self,
        place: counters::Place,
        written: Option<u64>,
        at_el0: bool,
        offered: &Offered,
    ) -> Option<u64> {
        self.absorb_counters();
        self.offered = *offered;
        let answer = match written {
            Some(value) => self.counters.write(place, value, at_el0, offered).map(|()| 0),
            None => self.counters.read(place, offered),
        };
        if self.counters.is_used() {
            self.has = self.has.with(Kinds::COUNTERS);
        }
        if self.has.has(Kinds::COUNTERS) {
            // SAFETY: they are in the processor, since its guest has just come out.
            unsafe { counting::give(&self.counters) };
        }
        answer
    }

    /// Stops its counters, and takes over what they show. They are in the processor.
    fn absorb_counters(&mut self) {
        if self.has.has(Kinds::COUNTERS) {
            // SAFETY: the counters in the processor are this vCPU's.
            let shown = unsafe { counting::take() };
            self.counters.absorb(&shown, &self.offered);
        }
    }

    /// The level of the interrupt of its counters, if it uses some; looks at the processor's if they `are_inside`.
    pub(super) fn counters_line(&mut self, are_inside: bool) -> Option<bool> {
        if !self.has.has(Kinds::COUNTERS) {
            return None;
        }
        if are_inside {
            self.absorb_counters();
            // SAFETY: they are in the processor, as the caller says.
            unsafe { counting::give(&self.counters) };
        }
        Some(self.counters.is_high())
    }

    /// Keeps loads of devices and reads of `PAR_EL1` apart, where they may stop the processor (erratum 1508412 of
    /// Cortex-A77).
    pub(super) fn order(&self) {
        if self.has.has(Kinds::BARRIERS) {
            // SAFETY: a barrier.
            unsafe { asm!("dmb sy", options(nostack)) };
        }
    }

    /// Takes those that each vCPU has out of the processor, which has those of `here`; after a pending error.
    #[inline]
    pub(super) fn save_of_each(&mut self, here: Kinds) {
        if here.has(Kinds::ERROR_RECORD) {
            self.error_record = crate::read_register!("s3_4_c12_c1_1");
        }
        if here.has(Kinds::TPIDR2) {
            self.tpidr2 = crate::read_register!("s3_3_c13_c0_5");
        }
    }

    /// Puts those that each vCPU has into the processor.
    ///
    /// # Safety
    ///
    /// As [`Optional::restore`]; the processor has those of `here`.
    #[inline]
    pub(super) unsafe fn restore_of_each(&self, here: Kinds) {
        // SAFETY: the processor has the registers; EL2 uses none of them.
        unsafe {
            if here.has(Kinds::ERROR_RECORD) {
                super::write_register_alone!("s3_4_c12_c1_1", self.error_record);
            }
            if here.has(Kinds::TPIDR2) {
                super::write_register_alone!("s3_3_c13_c0_5", self.tpidr2);
            }
        }
    }

    /// Takes them out of the processor, after a pending error. Returns whether there was one.
    #[inline(never)]
    pub(super) fn save(&mut self) -> bool {
        let here = self.here();
        let error = error::take(here.has(Kinds::ERROR_RECORD));
        self.save_of_each(here);
        if here.has(Kinds::KEYS) {
            self.keys = save_keys();
        }
        if here.has(Kinds::PHYSICAL_TIMER) {
            self.physical_timer = Timer::take_physical();
        }
        if here.has(Kinds::BREAKPOINTS) {
            // SAFETY: turns off what no other guest is to meet.
            unsafe { clear(&cpu::debug_ids()) };
        }
        if here.has(Kinds::COUNTERS) {
            self.absorb_counters();
        }
        error
    }

    /// Puts them into the processor.
    ///
    /// # Safety
    ///
    /// No guest runs, and the next one that does is whose registers these are.
    #[inline(never)]
    pub(super) unsafe fn restore(&self) {
        let here = self.here();
        // SAFETY: the processor has the registers; EL2 uses none of them.
        unsafe {
            self.restore_of_each(here);
            if here.has(Kinds::KEYS) {
                restore_keys(&self.keys);
            }
            if here.has(Kinds::PHYSICAL_TIMER) {
                self.physical_timer.give_physical();
            }
            if here.has(Kinds::BREAKPOINTS) {
                load(&self.debug);
            }
            if here.has(Kinds::COUNTERS) {
                counting::give(&self.counters);
            }
        }
    }
}

/// # Safety
///
/// As [`Optional::restore`]. EL2 itself takes no debug exceptions: `MDCR_EL2.TDE` is clear.
unsafe fn load(debug: &Debug) {
    let ids = cpu::debug_ids();
    // SAFETY: each processor has so many.
    unsafe {
        arm64_load_debug(
            debug.breakpoints.as_ptr(),
            ids.breakpoints() - 1,
            debug.watchpoints.as_ptr(),
            ids.watchpoints() - 1,
        );
    }
}

/// Turns off as many breakpoints and watchpoints as `ids` says.
///
/// # Safety
///
/// The processor has as many, and no guest runs that they are to be on for.
pub(super) unsafe fn clear(ids: &Ids) {
    // SAFETY: the caller's promise.
    unsafe { arm64_clear_debug(ids.breakpoints() - 1, ids.watchpoints() - 1) };
}

unsafe extern "C" {
    fn arm64_load_debug(
        breakpoints: *const Pair,
        last_breakpoint: usize,
        watchpoints: *const Pair,
        last_watchpoint: usize,
    );
    fn arm64_clear_debug(last_breakpoint: usize, last_watchpoint: usize);
}

// The lowest numbers are the last ones of each list, which is entered at the one of the number that the ID register has.
global_asm!(
    r#"
    .section .text.arm64_debug, "ax"
    .macro downwards what
    .irp n, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
    \what \n
    .endr
    .endm
    .macro load_breakpoint n
    ldp x5, x6, [x0, #(\n * 16)]
    msr dbgbvr\n\()_el1, x5
    msr dbgbcr\n\()_el1, x6
    .endm
    .macro load_watchpoint n
    ldp x5, x6, [x2, #(\n * 16)]
    msr dbgwvr\n\()_el1, x5
    msr dbgwcr\n\()_el1, x6
    .endm
    .macro clear_breakpoint n
    msr dbgbcr\n\()_el1, xzr
    .endm
    .macro clear_watchpoint n
    msr dbgwcr\n\()_el1, xzr
    .endm

    .global arm64_load_debug
arm64_load_debug:
    adr x4, 1f - 12
    add x1, x1, x1, lsl #1
    sub x4, x4, x1, lsl #2
    br x4
    downwards load_breakpoint
1:  adr x4, 2f - 12
    add x3, x3, x3, lsl #1
    sub x4, x4, x3, lsl #2
    br x4
    downwards load_watchpoint
2:  ret

    .global arm64_clear_debug
arm64_clear_debug:
    adr x4, 1f - 4
    sub x4, x4, x0, lsl #2
    br x4
    downwards clear_breakpoint
1:  adr x4, 2f - 4
    sub x4, x4, x1, lsl #2
    br x4
    downwards clear_watchpoint
2:  ret
    "#
);
