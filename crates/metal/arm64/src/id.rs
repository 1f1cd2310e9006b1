//! What a guest reads of its processor: those fields of the hardware's ID registers that are on a list.
//!
//! A field or register that is not on the list reads as zero, which means that the feature is absent (DDI 0487,
//! "Principles of the ID scheme for fields in ID registers"). So features of later architectures are hidden, until this
//! crate switches their registers between guests.
//!
//! Processors of one machine may differ. A guest sees what all of them have ([`common`]).

use crate::sysreg::{self, SysReg};

/// A field of four bits that a guest sees, as the hardware has it, up to a largest value.
struct Field {
    shift: u32,
    /// The largest that is shown; the field is unsigned.
    at_most: u64,
}

const fn any(shift: u32) -> Field {
    Field { shift, at_most: 15 }
}

const fn at_most(shift: u32, at_most: u64) -> Field {
    Field { shift, at_most }
}

/// `ID_AA64PFR0_EL1`: `DIT`, CSV2, CSV3. Not shown: `SVE`, `RAS`, `MPAM`, `AMU`, `SEL2`, `RME`, `CSV2` above 1
/// (`SCXTNUM_EL1` is not switched).
const PFR0: &[Field] = &[any(48), at_most(56, 1), any(60)];
/// `ID_AA64PFR1_EL1`: `BT`, `SSBS`. Not shown: `MTE`, `SME`, `MPAM_frac`, `RNDR_trap`, `NMI`, `GCS`.
const PFR1: &[Field] = &[any(0), at_most(4, 2)];
/// `ID_AA64ISAR0_EL1`: AES, SHA1, SHA2, CRC32, Atomic, RDM, SHA3, SM3, SM4, DP, FHM, TS, TLB, RNDR. Not shown: TME.
const ISAR0: &[Field] = &[
    any(4),
    any(8),
    any(12),
    any(16),
    any(20),
    any(28),
    any(32),
    any(36),
    any(40),
    any(44),
    any(48),
    any(52),
    any(56),
    any(60),
];
/// `ID_AA64ISAR1_EL1`: DPB, APA, API, JSCVT, FCMA, LRCPC, GPA, GPI, FRINTTS, SB, SPECRES, BF16, DGH, I8MM. Not shown:
/// XS, LS64.
const ISAR1: &[Field] = &[
    any(0),
    any(4),
    any(8),
    any(12),
    any(16),
    any(20),
    any(24),
    any(28),
    any(32),
    any(36),
    at_most(40, 1),
    at_most(44, 1),
    any(48),
    any(52),
];
/// `ID_AA64ISAR2_EL1`: RPRES, GPA3, APA3, BC, CSSC; and `PAC_frac`. Not shown: `WFxT`, MOPS (`HCRX_EL2`).
const ISAR2: &[Field] = &[any(4), any(8), any(12), any(20), any(24), any(52)];
/// `ID_AA64MMFR0_EL1`: `ASIDBits`, `BigEnd`, `BigEndEL0`, and granules of stage 1. `PARange` is the VM's. Not shown:
/// `SNSMem`, `FGT`, `ECV`, `ExS`, and granules of stage 2.
const MMFR0: &[Field] = &[any(4), any(8), any(16), any(20), any(24), any(28)];
/// `ID_AA64MMFR1_EL1`: `HAFDBS` (up to the dirty state), HPDS, PAN, ETS. Not shown: VMID bits, VH, LO, `SpecSEI`, XNX,
/// TWED, HCX, AFP, nTLBPA, TIDCP1, CMOW.
const MMFR1: &[Field] = &[at_most(0, 2), any(12), any(20), any(36)];
/// `ID_AA64MMFR2_EL1`: `CnP`, UAO, `LSM`, `VARange`, CCIDX, AT, TTL, BBM, `E0PD`. Not shown: IESB, NV, ST, IDS, FWB,
/// EVT.
const MMFR2: &[Field] =
    &[any(0), any(4), any(8), any(16), any(20), any(32), any(48), any(52), any(60)];

/// EL1 and EL0 in `AArch64` alone: `ID_AA64PFR0_EL1.EL0` and `EL1`; no EL2, no EL3.
const LEVELS: u64 = 0x11;
const FP_SHIFT: u32 = 16;
const SIMD_SHIFT: u32 = 20;
const GIC_SHIFT: u32 = 24;
const PMU_SHIFT: u32 = 8;
/// `PMUVer` of a PMU that is not the architecture's.
const IMPLEMENTATION_DEFINED: u64 = 15;

/// The version of the performance counters that a guest sees (`ID_AA64DFR0_EL1.PMUVer`), where the hardware's register is
/// `dfr0`: that of ARMv8.5, of ARMv8.1, or of ARMv8.0.
pub fn counters_version(dfr0: u64) -> u64 {
    match dfr0 >> PMU_SHIFT & 15 {
        0 | IMPLEMENTATION_DEFINED => 0,
        1..=3 => 1,
        4 | 5 => 4,
        _ => 6,
    }
}

fn shown(hardware: u64, fields: &[Field]) -> u64 {
    let show = |field: &Field| (hardware >> field.shift & 15).min(field.at_most) << field.shift;
    fields.iter().map(show).fold(0, |all, field| all | field)
}

/// What two processors both have, of which `register` reads as `first` and as `second`: of each field the lesser value,
/// by its sign. A field that is signed has 15 for what is absent.
pub fn common(register: SysReg, first: u64, second: u64) -> u64 {
    /// `TGran16_2`, `TGran64_2` and `TGran4_2` of `ID_AA64MMFR0_EL1`: 1 is for absent, and 0 for "as at stage 1".
    const STAGE2_GRANULES: [u32; 3] = [32, 36, 40];
    const ABSENT_AT_STAGE2: u64 = 1;
    let signed: &[u32] = match register {
        sysreg::ID_AA64PFR0_EL1 => &[FP_SHIFT, SIMD_SHIFT],
        // TGran64 and TGran4.
        sysreg::ID_AA64MMFR0_EL1 => &[24, 28],
        _ => &[],
    };
    let is_stage2 =
        |shift| register == sysreg::ID_AA64MMFR0_EL1 && STAGE2_GRANULES.contains(&shift);
    let field = |shift: u32| {
        let (first, second) = (first >> shift & 15, second >> shift & 15);
        let lesser = if signed.contains(&shift) {
            // 8 to 15 are less than nothing.
            if (first ^ 8) < (second ^ 8) { first } else { second }
        } else if is_stage2(shift) && (first == ABSENT_AT_STAGE2 || second == ABSENT_AT_STAGE2) {
            ABSENT_AT_STAGE2
        } else if register == sysreg::ID_AA64DFR0_EL1
            && shift == PMU_SHIFT
            && (first == IMPLEMENTATION_DEFINED || second == IMPLEMENTATION_DEFINED)
        {
            if first == second { first } else { 0 }
        } else {
            first.min(second)
        };
        lesser << shift
    };
    (0..64).step_by(4).fold(0, |all, shift| all | field(shift))
}

/// What a guest reads of ID register `register`, where the hardware has `hardware`, and the VM has so many bits of
/// physical address as `pa_range` says (`ID_AA64MMFR0_EL1.PARange`).
pub fn visible(register: SysReg, hardware: u64, pa_range: u64) -> u64 {
    match register {
        sysreg::ID_AA64PFR0_EL1 => {
            // Signed fields: as they are, and the system register interface of the GIC.
            let signed = hardware & (15 << FP_SHIFT | 15 << SIMD_SHIFT);
            shown(hardware, PFR0) | LEVELS | signed | 1 << GIC_SHIFT
        }
        sysreg::ID_AA64PFR1_EL1 => shown(hardware, PFR1),
        // ARMv8's debug architecture, and as many breakpoints and watchpoints as the hardware has: the last breakpoints
        // are those that compare contexts, so none can be left out. Counters of ARMv8.5 at most. No trace.
        sysreg::ID_AA64DFR0_EL1 => {
            6 | counters_version(hardware) << PMU_SHIFT
                | hardware & (15 << 12 | 15 << 20 | 15 << 28)
        }
        sysreg::ID_AA64ISAR0_EL1 => shown(hardware, ISAR0),
        sysreg::ID_AA64ISAR1_EL1 => shown(hardware, ISAR1),
        sysreg::ID_AA64ISAR2_EL1 => shown(hardware, ISAR2),
        // No granule of stage 2 is said to be as that of stage 1: there is no EL2.
        sysreg::ID_AA64MMFR0_EL1 => shown(hardware, MMFR0) | (pa_range & 15).min(hardware & 15),
        sysreg::ID_AA64MMFR1_EL1 => shown(hardware, MMFR1),
        sysreg::ID_AA64MMFR2_EL1 => shown(hardware, MMFR2),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sysreg::*;

    const PA_40: u64 = 2;

    #[test]
    fn what_is_not_switched_is_hidden_whatever_the_hardware_has() {
        let field = |register, shift: u32| visible(register, u64::MAX, PA_40) >> shift & 15;
        let hidden = [
            ("SVE", ID_AA64PFR0_EL1, 32),
            ("RAS", ID_AA64PFR0_EL1, 28),
            ("MPAM", ID_AA64PFR0_EL1, 40),
            ("AMU", ID_AA64PFR0_EL1, 44),
            ("RME", ID_AA64PFR0_EL1, 52),
            ("EL2", ID_AA64PFR0_EL1, 8),
            ("EL3", ID_AA64PFR0_EL1, 12),
            ("MTE", ID_AA64PFR1_EL1, 8),
            ("SME", ID_AA64PFR1_EL1, 24),
            ("SPE", ID_AA64DFR0_EL1, 32),
            ("trace filter", ID_AA64DFR0_EL1, 40),
            ("TRBE", ID_AA64DFR0_EL1, 44),
            ("LS64", ID_AA64ISAR1_EL1, 60),
            ("MOPS", ID_AA64ISAR2_EL1, 16),
            ("WFxT", ID_AA64ISAR2_EL1, 0),
            ("VHE", ID_AA64MMFR1_EL1, 8),
            ("LORegions", ID_AA64MMFR1_EL1, 16),
            ("nested virtualisation", ID_AA64MMFR2_EL1, 24),
            ("FWB", ID_AA64MMFR2_EL1, 40),
            ("SVE's own", ID_AA64ZFR0_EL1, 0),
            ("SME's own", ID_AA64SMFR0_EL1, 28),
            ("AArch32", ID_PFR0_EL1, 0),
        ];
        for (name, register, shift) in hidden {
            assert_eq!(field(register, shift), 0, "{name}");
        }
    }

    #[test]
    fn a_guest_has_el0_and_el1_in_aarch64_alone() {
        assert_eq!(visible(ID_AA64PFR0_EL1, 0x2222, PA_40) & 0xffff, 0x0011);
    }

    #[test]
    fn a_guest_has_the_breakpoints_of_the_hardware_and_no_later_debug_architecture() {
        // A Cortex-A72: six breakpoints, of which two compare contexts, and four watchpoints.
        assert_eq!(visible(ID_AA64DFR0_EL1, 0x1030_5106, PA_40), 0x1030_5106);
        assert_eq!(visible(ID_AA64DFR0_EL1, 0x1111_1111_10f0_561a, PA_40), 0x10f0_5606);
    }

    #[test]
    fn a_guest_has_the_counters_of_the_architecture_up_to_armv8_5_and_no_others() {
        let seen = |version: u64| visible(ID_AA64DFR0_EL1, version << 8, PA_40) >> 8 & 15;
        let versions = [0, 1, 4, 5, 6, 8, 15].map(seen);
        assert_eq!(versions, [0, 1, 4, 4, 6, 6, 0]);
        assert_eq!(common(ID_AA64DFR0_EL1, 15 << 8, 6 << 8), 0, "one has a PMU of another kind");
        assert_eq!(common(ID_AA64DFR0_EL1, 1 << 8, 6 << 8), 1 << 8);
    }

    #[test]
    fn a_machine_without_floating_point_says_so() {
        let without = 0xff << FP_SHIFT;
        assert_eq!(visible(ID_AA64PFR0_EL1, without, PA_40) & without, without);
    }

    #[test]
    fn processors_that_differ_have_in_common_what_both_have() {
        // As two kinds of core in one machine: LSE and dot products, or neither; PAuth of two algorithms.
        assert_eq!(common(ID_AA64ISAR0_EL1, 2 << 20 | 1 << 44, 1 << 4), 0);
        assert_eq!(common(ID_AA64ISAR1_EL1, 1 << 4, 1 << 8), 0, "APA or API, and no other");
        assert_eq!(common(ID_AA64MMFR0_EL1, 5, 2), 2, "40 bits of physical address");
        assert_eq!(common(ID_AA64MMFR2_EL1, 1 << 40 | 1, 1), 1, "FWB");
        assert_eq!(common(ID_AA64PFR0_EL1, 0x1 << FP_SHIFT, 0xf << FP_SHIFT), 0xf << FP_SHIFT);
        assert_eq!(common(ID_AA64MMFR0_EL1, 0xf << 28, 0), 0xf << 28, "the granule of 4 KiB");
        assert_eq!(common(ID_AA64MMFR0_EL1, 2 << 40, 1 << 40), 1 << 40, "the same at stage 2");
        assert_eq!(common(ID_AA64MMFR0_EL1, 2 << 40, 0), 0);
    }

    #[test]
    fn addresses_have_no_more_bits_than_the_vm() {
        assert_eq!(visible(ID_AA64MMFR0_EL1, 5, PA_40) & 15, PA_40);
        assert_eq!(visible(ID_AA64MMFR0_EL1, 1, PA_40) & 15, 1);
    }

    proptest! {
        #[test]
        fn what_is_in_common_is_the_same_in_any_order_and_of_equals_is_what_they_are(
            crm in 4_u8..8, op2 in 0_u8..8, first: u64, second: u64, third: u64
        ) {
            let register = SysReg::new(3, 0, 0, crm, op2);
            let both = |a, b| common(register, a, b);
            prop_assert_eq!(both(first, first), first);
            prop_assert_eq!(both(first, second), both(second, first));
            prop_assert_eq!(both(both(first, second), third), both(first, both(second, third)));
        }

        #[test]
        fn a_register_that_is_not_listed_reads_as_zero(crm in 1_u8..8, op2 in 0_u8..8, hardware: u64) {
            let register = SysReg::new(3, 0, 0, crm, op2);
            let listed = [
                ID_AA64PFR0_EL1, ID_AA64PFR1_EL1, ID_AA64DFR0_EL1, ID_AA64ISAR0_EL1, ID_AA64ISAR1_EL1, ID_AA64ISAR2_EL1,
                ID_AA64MMFR0_EL1, ID_AA64MMFR1_EL1, ID_AA64MMFR2_EL1,
            ];
            prop_assert!(register.is_id());
            if !listed.contains(&register) {
                prop_assert_eq!(visible(register, hardware, PA_40), 0);
            }
        }

        #[test]
        fn nothing_is_shown_that_the_hardware_does_not_have(crm in 6_u8..8, op2 in 0_u8..8, hardware: u64) {
            let register = SysReg::new(3, 0, 0, crm, op2);
            for shift in (0..64).step_by(4) {
                let (is, has) = (visible(register, hardware, 15) >> shift & 15, hardware >> shift & 15);
                prop_assert!(is <= has, "field {} of {}", shift, register);
            }
        }
    }
}
