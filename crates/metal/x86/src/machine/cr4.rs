//! What a guest writes to CR4: the bits of what its CPUID lists (AMD APM volume 2, 3.1.3).
//!
//! Other bits give state that VMRUN leaves as it is, and that would pass from one vCPU to the next: the rights of protection
//! keys, shadow stacks.

use super::cpuid::{self, Leaf, Vcpu};
use super::msr::Refused;

/// Each bit, and where CPUID has what it turns on: a leaf, a register, and a bit.
const BITS: [(u32, u32, usize, u32); 15] = [
    // VME and PVI,
    (0, 1, D, 1),
    (1, 1, D, 1),
    // TSD, DE, PSE, PAE, PGE,
    (2, 1, D, 4),
    (3, 1, D, 2),
    (4, 1, D, 3),
    (5, 1, D, 6),
    (7, 1, D, 13),
    // OSFXSR and OSXMMEXCPT,
    (9, 1, D, 24),
    (10, 1, D, 25),
    // OSXSAVE,
    (18, 1, C, 26),
    // UMIP, FSGSBASE, SMEP, SMAP.
    (11, 7, C, 2),
    (16, 7, B, 0),
    (20, 7, B, 7),
    (21, 7, B, 20),
    // PCE, which every processor of 64 bits has: RDPMC is refused all the same.
    (8, 0x8000_0001, D, 29),
];
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;

const EXTENDED: u64 = 1 << 5;
const LONG_ACTIVE: u64 = 1 << 10;

/// The bits that a vCPU has, on a machine whose processor reads `machine`.
pub fn bits(vcpu: Vcpu, machine: impl Fn(u32, u32) -> Leaf) -> u64 {
    let has = |leaf, register: usize, bit: u32| {
        cpuid::leaf(vcpu, leaf, 0, &machine)[register] >> bit & 1 != 0
    };
    BITS.into_iter()
        .filter(|&(_, leaf, register, bit)| has(leaf, register, bit))
        .fold(0, |bits, (number, ..)| bits | 1 << number)
}

/// What CR4 becomes if a guest that has these `bits` writes `value`, and its `EFER` is this.
///
/// # Errors
///
/// A bit that it does not have; or long mode is active, and PAE is turned off.
pub const fn write(value: u64, bits: u64, efer: u64) -> Result<u64, Refused> {
    let loses_tables = efer & LONG_ACTIVE != 0 && value & EXTENDED == 0;
    if value & !bits != 0 || loses_tables { Err(Refused) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::xsave::Xsave;

    const ONE: Vcpu = Vcpu {
        number: 0,
        vcpus: 1,
        x2apic: true,
        xsave: Xsave { bits: 7, saved: 7, xcr0: 1, is_on: false },
    };

    fn everything(leaf: u32, _: u32) -> Leaf {
        match leaf {
            0 => [0x20, 0, 0, 0],
            0x8000_0000 => [0x8000_0021, 0, 0, 0],
            _ => [u32::MAX; 4],
        }
    }

    #[test]
    fn on_a_processor_that_has_everything_a_guest_has_what_its_cpuid_lists() {
        let bits = bits(ONE, everything);
        // VME to PAE, PGE to UMIP, FSGSBASE, OSXSAVE, SMEP, SMAP.
        assert_eq!(bits, 0x35_0fbf);
        // MCE, LA57, VMXE, SMXE, PCIDE, PKE, CET, PKS, and what has no name.
        for bit in [6, 12, 13, 14, 17, 22, 23, 24, 32, 63] {
            assert_eq!(write(1 << bit, bits, 0), Err(Refused), "{bit}");
        }
        assert_eq!(write(bits, bits, 0), Ok(bits));
        let without = Vcpu { xsave: Xsave { bits: 0, ..ONE.xsave }, ..ONE };
        assert_eq!(self::bits(without, everything), bits & !(1 << 18));
    }

    #[test]
    fn a_guest_has_no_bit_of_what_its_machine_lacks() {
        let nothing = |leaf: u32, _| match leaf {
            0 | 0x8000_0000 => [leaf | 8, 0, 0, 0],
            _ => [0; 4],
        };
        assert_eq!(bits(ONE, nothing), 0);
        let without_leaf_7 = |leaf, sub| match leaf {
            0 => [1, 0, 0, 0],
            7 => [0; 4],
            _ => everything(leaf, sub),
        };
        assert_eq!(bits(ONE, without_leaf_7), 0x4_07bf);
    }

    #[test]
    fn long_mode_keeps_its_tables() {
        let bits = bits(ONE, everything);
        assert_eq!(write(0, bits, LONG_ACTIVE), Err(Refused));
        assert_eq!(write(EXTENDED, bits, LONG_ACTIVE), Ok(EXTENDED));
        assert_eq!(write(0, bits, 0), Ok(0));
    }
}
