//! What all processors of the machine have: of each ID register the features that every one of them has, and the errata
//! that any of them has. A vCPU runs on all of them.
//!
//! Each processor calls [`note`] when it comes up, one after the other; no guest runs before the last has.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::errata::Errata;
use crate::id;
use crate::sysreg::{self, SysReg};

/// The registers that are looked at.
const REGISTERS: [SysReg; 9] = [
    sysreg::ID_AA64PFR0_EL1,
    sysreg::ID_AA64PFR1_EL1,
    sysreg::ID_AA64DFR0_EL1,
    sysreg::ID_AA64ISAR0_EL1,
    sysreg::ID_AA64ISAR1_EL1,
    sysreg::ID_AA64ISAR2_EL1,
    sysreg::ID_AA64MMFR0_EL1,
    sysreg::ID_AA64MMFR1_EL1,
    sysreg::ID_AA64MMFR2_EL1,
];

static COMMON: [AtomicU64; REGISTERS.len()] = [const { AtomicU64::new(0) }; REGISTERS.len()];
static ERRATA: AtomicU8 = AtomicU8::new(0);

/// This processor's.
fn read() -> [u64; REGISTERS.len()] {
    [
        crate::read_register!("s3_0_c0_c4_0"),
        crate::read_register!("s3_0_c0_c4_1"),
        crate::read_register!("id_aa64dfr0_el1"),
        crate::read_register!("s3_0_c0_c6_0"),
        crate::read_register!("s3_0_c0_c6_1"),
        crate::read_register!("s3_0_c0_c6_2"),
        crate::read_register!("s3_0_c0_c7_0"),
        crate::read_register!("s3_0_c0_c7_1"),
        crate::read_register!("s3_0_c0_c7_2"),
    ]
}

/// This processor is one of the machine's: the `first`, or another.
pub fn note(first: bool) {
    for ((register, common), here) in REGISTERS.iter().zip(&COMMON).zip(read()) {
        let before = common.load(Ordering::Relaxed);
        let value = if first { here } else { id::common(*register, before, here) };
        common.store(value, Ordering::Relaxed);
    }
    let here = Errata::of(crate::read_register!("midr_el1"));
    ERRATA.fetch_or(here.bits(), Ordering::Relaxed);
}

/// What all processors have of an ID register that guests see something of; 0 for others.
pub fn id_register(register: SysReg) -> u64 {
    let place = REGISTERS.iter().position(|each| *each == register);
    place.map_or(0, |place| COMMON[place].load(Ordering::Relaxed))
}

/// The errata that one of the processors has.
#[inline]
pub fn errata() -> Errata {
    Errata::from_bits(ERRATA.load(Ordering::Relaxed))
}
