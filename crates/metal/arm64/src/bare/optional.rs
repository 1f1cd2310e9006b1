//! The registers that not every vCPU has, or uses: keys of pointer authentication, the record of deferred errors,
//! `TPIDR2_EL0`, the physical timer, breakpoints and watchpoints. A vCPU that has none of them pays one test for that,
//! when it is switched.
//!
//! The first three are every vCPU's where the processor has them. The physical timer is trapped until the vCPU's first
//! access to it, and switched from then on. Breakpoints and watchpoints are those of a vCPU that has enabled one. Each
//! write comes out to EL2, so they need not be read back: they are loaded with the vCPU, and are
//! turned off when it leaves the processor, so that no other vCPU meets them.

use core::arch::{asm, global_asm};

use super::timer::Timer;
use super::{common, cpu, error};
use crate::debug::{Debug, Pair, Place};
use crate::errata::Errata;

const KEYS: u32 = 1;
const ERROR_RECORD: u32 = 1 << 1;
const TPIDR2: u32 = 1 << 2;
const BREAKPOINTS: u32 = 1 << 3;
const PHYSICAL_TIMER: u32 = 1 << 4;
/// Barriers about reads of `PAR_EL1`.
const BARRIERS: u32 = 1 << 5;

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

/// They.
#[derive(Clone, Debug)]
pub(super) struct Optional {
    /// Which of them this vCPU has.
    has: u32,
    keys: [u64; 10],
    /// `VDISR_EL2`, which is the guest's `DISR_EL1`.
    error_record: u64,
    tpidr2: u64,
    physical_timer: Timer,
    debug: Debug,
}

impl Optional {
    /// Those that each vCPU has on this processor, as after a reset.
    pub(super) fn new() -> Self {
        let ids = cpu::ids();
        let has = [
            (cpu::has_pointer_authentication(), KEYS),
            (ids.has_ras(), ERROR_RECORD),
            (ids.shows_tpidr2(), TPIDR2),
            (common::errata().has(Errata::PAR_BARRIERS), BARRIERS),
        ];
        let has = has.into_iter().filter(|(has, _)| *has).fold(0, |all, (_, bit)| all | bit);
        Self {
            has,
            keys: [0; 10],
            error_record: 0,
            tpidr2: 0,
            physical_timer: Timer::default(),
            debug: Debug::default(),
        }
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.has != 0
    }

    pub(super) fn has_keys(&self) -> bool {
        self.has & KEYS != 0
    }

    pub(super) fn debug(&self) -> &Debug {
        &self.debug
    }

    /// Writes `value` to `place`, here and in the processor. A kernel that only clears them when it boots has none.
    pub(super) fn set_debug(&mut self, place: Place, value: u64) {
        self.debug.set(place, value);
        if self.debug.enables(place) {
            self.has |= BREAKPOINTS;
        }
        if self.has & BREAKPOINTS != 0 {
            // SAFETY: they are in the processor, since its guest has just come out.
            unsafe { load(&self.debug) };
        }
    }

    /// Has this vCPU's physical timer in the processor from now on, while the vCPU is there, which it is.
    pub(super) fn use_physical_timer(&mut self) {
        self.has |= PHYSICAL_TIMER;
        self.physical_timer.give_physical();
    }

    /// When the physical timer is due, in ticks of the counter, if it is on.
    pub(super) fn physical_timer_due(&self) -> Option<u64> {
        self.physical_timer.due(0)
    }

    /// Keeps loads of devices and reads of `PAR_EL1` apart, where they may stop the processor.
    pub(super) fn order(&self) {
        if self.has & BARRIERS != 0 {
            // SAFETY: a barrier.
            unsafe { asm!("dmb sy", options(nostack)) };
        }
    }

    /// Takes them out of the processor, after a pending error. Returns whether there was one.
    #[inline(never)]
    pub(super) fn save(&mut self) -> bool {
        let error = error::take(self.has & ERROR_RECORD != 0);
        if self.has & KEYS != 0 {
            self.keys = save_keys();
        }
        if self.has & ERROR_RECORD != 0 {
            self.error_record = crate::read_register!("s3_4_c12_c1_1");
        }
        if self.has & TPIDR2 != 0 {
            self.tpidr2 = crate::read_register!("s3_3_c13_c0_5");
        }
        if self.has & PHYSICAL_TIMER != 0 {
            self.physical_timer = Timer::take_physical();
        }
        if self.has & BREAKPOINTS != 0 {
            let ids = cpu::debug_ids();
            // SAFETY: turns off what no other guest is to meet.
            unsafe { arm64_clear_debug(ids.breakpoints(), ids.watchpoints()) };
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
        // SAFETY: the processor has the registers; EL2 uses none of them.
        unsafe {
            if self.has & KEYS != 0 {
                restore_keys(&self.keys);
            }
            if self.has & ERROR_RECORD != 0 {
                super::write_register_alone!("s3_4_c12_c1_1", self.error_record);
            }
            if self.has & TPIDR2 != 0 {
                super::write_register_alone!("s3_3_c13_c0_5", self.tpidr2);
            }
            if self.has & PHYSICAL_TIMER != 0 {
                self.physical_timer.give_physical();
            }
            if self.has & BREAKPOINTS != 0 {
                load(&self.debug);
            }
        }
    }
}

/// # Safety
///
/// As [`Optional::restore`]. EL2 itself takes no debug exceptions: `MDCR_EL2.TDE` is clear.
unsafe fn load(debug: &Debug) {
    let ids = cpu::debug_ids();
    // SAFETY: the processor has so many.
    unsafe {
        arm64_load_debug(
            debug.breakpoints.as_ptr(),
            ids.breakpoints(),
            debug.watchpoints.as_ptr(),
            ids.watchpoints(),
        );
    }
}

unsafe extern "C" {
    fn arm64_load_debug(
        breakpoints: *const Pair,
        breakpoint_count: usize,
        watchpoints: *const Pair,
        watchpoint_count: usize,
    );
    fn arm64_clear_debug(breakpoint_count: usize, watchpoint_count: usize);
}

// Those that the processor has are the last ones of each list, which is entered behind the others.
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
    adr x4, 1f
    add x1, x1, x1, lsl #1
    sub x4, x4, x1, lsl #2
    br x4
    downwards load_breakpoint
1:  adr x4, 2f
    add x3, x3, x3, lsl #1
    sub x4, x4, x3, lsl #2
    br x4
    downwards load_watchpoint
2:  ret

    .global arm64_clear_debug
arm64_clear_debug:
    adr x4, 1f
    sub x4, x4, x0, lsl #2
    br x4
    downwards clear_breakpoint
1:  adr x4, 2f
    sub x4, x4, x1, lsl #2
    br x4
    downwards clear_watchpoint
2:  ret
    "#
);
