//! This processor: what it is, what it can do as all of the machine's can, and the registers of EL2 that are set once.

use core::arch::asm;

use mayfly_vm::stage2::ArmFeatures;

use super::common::id_register;
use super::counting;
use crate::controls::{Controls, Ids};
use crate::kinds::Kinds;
use crate::sysreg;

/// What all processors can do at stage 2.
pub fn stage2_features() -> ArmFeatures {
    ArmFeatures::new(
        id_register(sysreg::ID_AA64MMFR0_EL1),
        id_register(sysreg::ID_AA64MMFR1_EL1),
        id_register(sysreg::ID_AA64MMFR2_EL1),
    )
}

/// `MPIDR_EL1`, its affinity fields alone.
pub fn affinity() -> u64 {
    crate::read_register!("mpidr_el1") & 0xff_00ff_ffff
}

/// The exception level that this runs at.
pub fn exception_level() -> u64 {
    crate::read_register!("CurrentEL") >> 2 & 3
}

/// Whether this processor, at EL2, has kept `HCR_EL2.E2H` set, which the first instructions clear: it is without
/// `FEAT_E2H0`, and its EL2 has the layout of `FEAT_VHE` alone.
pub fn keeps_host_layout() -> bool {
    crate::read_register!("hcr_el2") >> 34 & 1 == 1
}

/// Whether all processors have pointer authentication, by any algorithm: then its keys are a guest's.
pub fn has_pointer_authentication() -> bool {
    let isar1 = id_register(sysreg::ID_AA64ISAR1_EL1);
    let isar2 = id_register(sysreg::ID_AA64ISAR2_EL1);
    isar1 >> 4 & 0xff != 0 || isar2 >> 12 & 0xf != 0
}

/// Whether all processors have the access privilege that `PSTATE.PAN` takes.
pub fn has_pan() -> bool {
    id_register(sysreg::ID_AA64MMFR1_EL1) >> 20 & 0xf != 0
}

/// Whether all processors have `PSTATE.SSBS`.
pub fn has_ssbs() -> bool {
    id_register(sysreg::ID_AA64PFR1_EL1) >> 4 & 0xf != 0
}

/// Whether floating point does not trap at EL2: `CPTR_EL2.TFP`. The firmware may have left it set, until
/// [`prepare`].
pub(super) fn has_floating_point() -> bool {
    crate::read_register!("cptr_el2") >> 10 & 1 == 0
}

/// Whether all processors have `FEAT_CCIDX`, and with it `CCSIDR2_EL1`.
pub(super) fn has_wide_cache_sizes() -> bool {
    id_register(sysreg::ID_AA64MMFR2_EL1) >> 20 & 0xf != 0
}

/// A number of the processor's own generator (`RNDR`), where it has one that has something to give.
pub fn random() -> Option<u64> {
    // ID_AA64ISAR0_EL1.RNDR.
    if id_register(sysreg::ID_AA64ISAR0_EL1) >> 60 == 0 {
        return None;
    }
    let (number, given): (u64, u64);
    // SAFETY: reads a register that this processor has; the flags say whether it gave anything.
    unsafe {
        asm!("mrs {}, s3_3_c2_c4_0", "cset {}, ne", out(reg) number, out(reg) given, options(nomem, nostack));
    }
    (given == 1).then_some(number)
}

/// The number that [`set_number`] gave this processor.
#[inline]
pub fn number() -> usize {
    crate::read_register!("tpidr_el2") as usize
}

/// Gives this processor its number.
///
/// # Safety
///
/// No other has it, and it is given before anything asks for it.
pub unsafe fn set_number(number: usize) {
    // SAFETY: the register means what this module makes it mean.
    unsafe { crate::write_register!("tpidr_el2", number as u64) };
}

/// The ID registers by which EL2's own are set.
pub(super) fn ids() -> Ids {
    let mut ids = Ids {
        pfr0: crate::read_register!("id_aa64pfr0_el1"),
        pfr1: crate::read_register!("id_aa64pfr1_el1"),
        mmfr0: crate::read_register!("id_aa64mmfr0_el1"),
        mmfr1: crate::read_register!("id_aa64mmfr1_el1"),
        dfr0: crate::read_register!("id_aa64dfr0_el1"),
        ..Ids::default()
    };
    if ids.has_mpam() {
        ids.mpamidr = crate::read_register!("s3_0_c10_c4_4");
    }
    if ids.has_pmu() {
        ids.pmcr = crate::read_register!("pmcr_el0");
    }
    ids
}

/// The one that says how many breakpoints and watchpoints every processor has; the others are zero.
#[inline]
pub(super) fn debug_ids() -> Ids {
    Ids { dfr0: id_register(sysreg::ID_AA64DFR0_EL1), ..Ids::default() }
}

/// The kinds of registers that this processor has, whatever the others are.
pub(super) fn kinds() -> Kinds {
    Kinds::of(Ids {
        pfr0: crate::read_register!("id_aa64pfr0_el1"),
        pfr1: crate::read_register!("id_aa64pfr1_el1"),
        mmfr0: crate::read_register!("id_aa64mmfr0_el1"),
        ..Ids::default()
    })
}

/// Sets what guests reach of their processor. Registers that assemblers do not know are named by number.
///
/// # Safety
///
/// At EL2, with `HCR_EL2.E2H` clear; the processor has the registers that `controls` has a value for.
unsafe fn confine(controls: &Controls) {
    macro_rules! write_if_present {
        ($value:expr, $($name:literal)*) => {
            if let Some(value) = $value {
                $(crate::write_register!($name, value);)*
            }
        };
    }
    // SAFETY: the caller's promise. They bear on guests alone, and none runs.
    unsafe {
        crate::write_register!("cptr_el2", controls.cptr);
        crate::write_register!("mdcr_el2", controls.mdcr);
        crate::write_register!("cnthctl_el2", controls.cnthctl);
        write_if_present!(controls.hcrx, "s3_4_c1_c2_2");
        if let Some(fine) = controls.fine {
            crate::write_register!("s3_4_c1_c1_4", fine.hfgrtr);
            crate::write_register!("s3_4_c1_c1_5", fine.hfgwtr);
            crate::write_register!("s3_4_c1_c1_6", fine.hfgitr);
            crate::write_register!("s3_4_c3_c1_4", fine.hdfgrtr);
            crate::write_register!("s3_4_c3_c1_5", fine.hdfgwtr);
        }
        write_if_present!(controls.hafgrtr, "s3_4_c3_c1_6");
        // HDFGRTR2, HDFGWTR2, HFGRTR2, HFGWTR2, HFGITR2.
        write_if_present!(controls.fine2, "s3_4_c3_c1_0" "s3_4_c3_c1_1" "s3_4_c3_c1_2" "s3_4_c3_c1_3" "s3_4_c3_c1_7");
        write_if_present!(controls.mpam2, "s3_4_c10_c5_0");
        write_if_present!(controls.mpamhcr, "s3_4_c10_c4_0");
        write_if_present!(controls.trfcr, "s3_4_c1_c2_1");
        write_if_present!(controls.vsesr, "s3_4_c5_c2_3");
    }
}

/// Sets what is the same for all guests, once on each processor.
///
/// # Safety
///
/// At EL2, with `HCR_EL2.E2H` clear; `vtcr` is of the format of all tables that `VTTBR_EL2` will name.
pub unsafe fn prepare(vtcr: u64) {
    let midr = crate::read_register!("midr_el1");
    // SAFETY: none of them bears on EL2's own execution. Nothing is in a guest, nor in a TLB for one.
    unsafe {
        confine(&Controls::of(ids()));
        crate::write_register!("hstr_el2", 0_u64);
        crate::write_register!("vtcr_el2", vtcr);
        crate::write_register!("vpidr_el2", midr);
        // A guest has what its vCPU says.
        crate::write_register!("mdscr_el1", 0_u64);
        // Locks of debug exceptions, one of which is on after a reset. A guest's own lock is not the processor's.
        crate::write_register!("osdlr_el1", 0_u64);
        crate::write_register!("oslar_el1", 0_u64);
        asm!("isb", options(nostack));
    }
    if debug_ids().has_pmu() {
        // SAFETY: the processor has counters, and no guest's are in it.
        unsafe { counting::stop() };
    }
}
