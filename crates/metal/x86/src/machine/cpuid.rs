//! What a guest reads of its processor by CPUID: what is listed here, as far as the machine's has it. What is not listed is
//! absent (AMD APM volume 3, appendix E; Linux, Documentation/virt/kvm/x86/cpuid.rst).

use super::xsave::{AVX, HAS_XSAVE, Xsave};

/// A leaf: EAX, EBX, ECX, EDX.
pub type Leaf = [u32; 4];

/// What of it differs from one vCPU to the next, and from one VM to the next.
#[derive(Clone, Copy, Debug)]
pub struct Vcpu {
    /// Its number, which is the ID of its local APIC.
    pub number: u32,
    /// How many there are.
    pub vcpus: u32,
    /// Whether it has an x2APIC mode.
    pub x2apic: bool,
    /// What it has of XSAVE.
    pub xsave: Xsave,
}

const ABSENT: Leaf = [0; 4];

/// The last leaf of each range.
const LAST: u32 = 0xd;
const TOPOLOGY: u32 = 0xb;
const LAST_HYPERVISOR: u32 = 0x4000_0001;
const LAST_EXTENDED: u32 = 0x8000_0008;

/// Leaf 1, ECX: SSE3, PCLMULQDQ, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, AES, RDRAND.
const FEATURES_C: u32 = bits(&[0, 1, 9, 13, 19, 20, 22, 23, 25, 30]);
/// The x2APIC mode,
const X2APIC: u32 = 1 << 21;
/// the APIC's timer with a deadline, and "there is a hypervisor": ours, whatever the machine has.
const OURS_C: u32 = 1 << 24 | 1 << 31;
/// Of AVX: FMA, AVX, F16C.
const AVX_C: u32 = bits(&[12, 28, 29]);
/// `CR4.OSXSAVE`, as leaf 1 has it in ECX.
const XSAVE_IS_ON: u32 = 1 << 27;
/// Leaf 1, EDX: FPU, VME, DE, PSE, TSC, MSR, PAE, CMPXCHG8B, APIC, SYSENTER, PGE, CMOV, PAT, PSE36, CLFLUSH, MMX, FXSAVE,
/// SSE, SSE2. There are no machine checks and no MTRRs.
const FEATURES_D: u32 = bits(&[0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 15, 16, 17, 19, 23, 24, 25, 26]);
/// There are several processors.
const SEVERAL: u32 = 1 << 28;
/// Leaf 7, EBX: FSGSBASE, BMI1, SMEP, BMI2, ERMS, INVPCID, RDSEED, ADX, SMAP, CLFLUSHOPT, CLWB, SHA.
const EXTENDED_B: u32 = bits(&[0, 3, 7, 8, 9, 10, 18, 19, 20, 23, 24, 29]);
/// Of AVX: AVX2.
const AVX_B: u32 = 1 << 5;
/// Leaf 7, ECX: UMIP, RDPID.
const EXTENDED_C: u32 = bits(&[2, 22]);
/// Leaf 7, EDX: FSRM.
const EXTENDED_D: u32 = bits(&[4]);
/// The second part of leaf 0xd, EAX: XSAVEOPT.
const XSAVE_A: u32 = 1 << 0;
/// Leaf `8000_0001`, ECX: LAHF, `CmpLegacy`, CR8, ABM, SSE4A, misaligned SSE, PREFETCH. There is no SVM.
const AMD_C: u32 = bits(&[0, 4, 5, 6, 7, 8]);
/// That there are several processors in a package.
const CMP_LEGACY: u32 = 1 << 1;
/// Leaf `8000_0001`, EDX: those of leaf 1, and SYSCALL, NX, MMX extensions, pages of 1 GiB, RDTSCP, long mode.
const AMD_D: u32 = FEATURES_D & 0x0183_f3ff & !(1 << 11) | bits(&[11, 20, 22, 26, 27, 29]);
/// Leaf `8000_0007`, EDX: the time-stamp counter is invariant.
const INVARIANT: u32 = 1 << 8;
/// Bits of a guest's physical addresses.
pub const PHYSICAL_BITS: u32 = 40;

/// Leaf `4000_0001`: KVM's clock by its newer MSRs, which is stable, and no delay by port 0x80 is needed.
const KVM: u32 = bits(&[1, 3, 24]);
const SIGNATURE: &[u8; 12] = b"KVMKVMKVM\0\0\0";

const fn bits(numbers: &[u32]) -> u32 {
    let (mut bits, mut at) = (0, 0);
    while at < numbers.len() {
        bits |= 1 << numbers[at];
        at += 1;
    }
    bits
}

/// How many bits the numbers of so many processors have.
const fn id_bits(vcpus: u32) -> u32 {
    vcpus.next_power_of_two().trailing_zeros()
}

fn signature(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Whether a leaf says what the vCPU has on of XSAVE, beside what it has of it.
pub const fn tells_xsave(leaf: u32) -> bool {
    matches!(leaf, 1 | 0xd)
}

/// What a vCPU reads at a leaf, of a machine whose processor reads `machine`.
pub fn leaf(vcpu: Vcpu, leaf: u32, sub: u32, machine: impl Fn(u32, u32) -> Leaf) -> Leaf {
    if leaf == 0 {
        let [_, b, c, d] = machine(0, 0);
        return [LAST, b, c, d];
    }
    let last = match leaf >> 30 {
        0 => LAST.min(machine(0, 0)[0].max(1)),
        1 => LAST_HYPERVISOR,
        2 => LAST_EXTENDED.min(machine(0x8000_0000, 0)[0]),
        _ => return ABSENT,
    };
    // That of the topology is ours.
    if leaf > last && leaf != TOPOLOGY {
        return ABSENT;
    }
    let its = |mask: Leaf| {
        let [a, b, c, d] = machine(leaf, sub);
        [a & mask[0], b & mask[1], c & mask[2], d & mask[3]]
    };
    let xsave = vcpu.xsave;
    let of_avx = |bits| if xsave.bits & AVX != 0 { bits } else { 0 };
    let several = |bit| if vcpu.vcpus > 1 { bit } else { 0 };
    match leaf {
        1 => {
            let of_xsave = if xsave.bits != 0 { HAS_XSAVE | of_avx(AVX_C) } else { 0 };
            let [a, b, c, d] = its([u32::MAX, 0xff00, FEATURES_C | of_xsave, FEATURES_D]);
            let ours = OURS_C
                | if vcpu.x2apic { X2APIC } else { 0 }
                | if xsave.is_on { XSAVE_IS_ON } else { 0 };
            let counted = several(vcpu.vcpus.min(0xff) << 16);
            [a, b | vcpu.number << 24 | counted, c | ours, d | several(SEVERAL)]
        }
        7 if sub == 0 => {
            let [_, b, c, d] = its([0, EXTENDED_B | of_avx(AVX_B), EXTENDED_C, EXTENDED_D]);
            [0, b, c, d]
        }
        TOPOLOGY => topology(vcpu, sub),
        0xd if sub == 1 && xsave.bits != 0 => its([XSAVE_A, 0, 0, 0]),
        0xd => xsave.leaf(sub),
        0x4000_0000 => [
            LAST_HYPERVISOR,
            signature(&SIGNATURE[..4]),
            signature(&SIGNATURE[4..8]),
            signature(&SIGNATURE[8..]),
        ],
        0x4000_0001 => [KVM, 0, 0, 0],
        0x8000_0000 => {
            let [_, b, c, d] = machine(leaf, 0);
            [last, b, c, d]
        }
        0x8000_0001 => {
            let [a, b, c, d] = its([u32::MAX, u32::MAX, AMD_C, AMD_D]);
            [a, b, c | several(CMP_LEGACY), d]
        }
        // The name, and the sizes of caches and TLBs.
        0x8000_0002..=0x8000_0006 => machine(leaf, 0),
        0x8000_0007 => its([0, 0, 0, INVARIANT]),
        0x8000_0008 => {
            let [a, ..] = machine(leaf, 0);
            let physical = (a & 0xff).min(PHYSICAL_BITS);
            // Without pages of five levels.
            [48 << 8 | physical, 0, id_bits(vcpu.vcpus) << 12 | (vcpu.vcpus - 1), 0]
        }
        _ => ABSENT,
    }
}

/// One thread a core, and all cores in one package.
const fn topology(vcpu: Vcpu, sub: u32) -> Leaf {
    const THREAD: u32 = 1 << 8;
    const CORE: u32 = 2 << 8;
    match sub {
        0 => [0, 1, THREAD, vcpu.number],
        1 => [id_bits(vcpu.vcpus), vcpu.vcpus, CORE | 1, vcpu.number],
        _ => [0, 0, sub & 0xff, vcpu.number],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: fn(u32, u32) -> Leaf = |leaf, _| match leaf {
        0 => [0x20, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
        0x8000_0000 => [0x8000_0021, 0, 0, 0],
        _ => [u32::MAX; 4],
    };
    const WITHOUT: Xsave = Xsave { bits: 0, saved: 0, xcr0: 1, is_on: false };
    const ONE: Vcpu = Vcpu { number: 0, vcpus: 1, x2apic: true, xsave: WITHOUT };

    #[test]
    fn what_is_on_of_xsave_is_told_by_those_leaves_alone() {
        let xsave = Xsave { bits: 7, saved: 7, xcr0: 7, is_on: true };
        let (on, off) = (Vcpu { xsave, ..ONE }, Xsave { xcr0: 1, is_on: false, ..xsave });
        let off = Vcpu { xsave: off, ..ONE };
        for number in (0..0x20).chain(0x4000_0000..0x4000_0003).chain(0x8000_0000..0x8000_0020) {
            let differs =
                (0..3).any(|sub| leaf(on, number, sub, ALL) != leaf(off, number, sub, ALL));
            assert_eq!(differs, tells_xsave(number), "{number:#x}");
        }
    }

    #[test]
    fn a_guest_sees_what_is_listed_of_a_processor_that_has_everything() {
        let read = |number| leaf(ONE, number, 0, ALL);
        assert_eq!(read(1)[2] & !(FEATURES_C | OURS_C | X2APIC), 0);
        // Neither XSAVE, AVX, MONITOR, machine checks, MTRRs, nor SVM, and no more processors than it has.
        assert_eq!(read(1)[2] & bits(&[3, 26, 27, 28]), 0);
        assert_eq!(read(1)[3] & bits(&[7, 12, 14, 28]), 0);
        assert_eq!(read(0x8000_0001)[2] & bits(&[1, 2, 22]), 0);
        assert_eq!(read(7)[1] & bits(&[5, 16]), 0);
        assert_eq!(read(0)[0], LAST);
        assert_eq!(read(0x8000_0000)[0], LAST_EXTENDED);
        for number in [
            2,
            3,
            4,
            5,
            6,
            8,
            9,
            10,
            12,
            0xd,
            0x14,
            0x4000_0002,
            0x8000_0009,
            0x8000_001e,
            u32::MAX,
        ] {
            assert_eq!(read(number), ABSENT, "{number:#x}");
        }
    }

    #[test]
    fn a_guest_has_avx_where_its_state_is_saved() {
        let all = Xsave { bits: 7, saved: 7, xcr0: 7, is_on: true };
        let read = |xsave, number, sub| leaf(Vcpu { xsave, ..ONE }, number, sub, ALL);
        let of_leaf_1 = bits(&[12, 26, 27, 28, 29]);
        assert_eq!(read(all, 1, 0)[2] & of_leaf_1, of_leaf_1);
        assert_eq!(read(all, 7, 0)[1] & bits(&[5, 16]), bits(&[5]), "AVX2, and no AVX-512");
        assert_eq!(read(all, 0xd, 0), [7, 832, 832, 0]);
        assert_eq!(read(all, 0xd, 1), [1, 0, 0, 0], "XSAVEOPT, and no XSAVEC and XSAVES");
        assert_eq!(read(all, 0xd, 9), ABSENT, "no protection keys");
        let without_avx = Xsave { bits: 3, saved: 3, xcr0: 3, is_on: false };
        assert_eq!(read(without_avx, 1, 0)[2] & of_leaf_1, HAS_XSAVE);
        assert_eq!(read(without_avx, 7, 0)[1] & AVX_B, 0);
        assert_eq!(read(without_avx, 0xd, 2), ABSENT);
    }

    #[test]
    fn a_guest_sees_nothing_that_its_machine_has_not() {
        let none = |leaf: u32, _| match leaf {
            0 => [7, 1, 2, 3],
            0x8000_0000 => [0x8000_0008, 0, 0, 0],
            _ => ABSENT,
        };
        assert_eq!(leaf(ONE, 1, 0, none), [0, 0, OURS_C | X2APIC, 0]);
        assert_eq!(leaf(ONE, 7, 0, none), ABSENT);
        assert_eq!(leaf(ONE, 0x8000_0001, 0, none), ABSENT);
        let few = |leaf: u32, _| if leaf == 0x8000_0000 { [0x8000_0004, 0, 0, 0] } else { ABSENT };
        assert_eq!(leaf(ONE, 0x8000_0008, 0, few), ABSENT);
    }

    #[test]
    fn each_vcpu_has_a_number_and_knows_how_many_there_are() {
        for (vcpus, bits) in [(1, 0), (2, 1), (3, 2), (4, 2), (64, 6)] {
            for number in 0..vcpus {
                let vcpu = Vcpu { number, vcpus, x2apic: false, xsave: WITHOUT };
                let read = |number, sub| leaf(vcpu, number, sub, ALL);
                assert_eq!(read(1, 0)[1] >> 24, number);
                assert_eq!(read(1, 0)[2] & X2APIC, 0);
                assert_eq!(read(0xb, 0), [0, 1, 0x100, number]);
                assert_eq!(read(0xb, 1), [bits, vcpus, 0x201, number]);
                assert_eq!(read(0x8000_0008, 0)[2] & 0xff, vcpus - 1);
            }
        }
    }

    #[test]
    fn the_hypervisor_is_one_that_linux_knows() {
        let [last, b, c, d] = leaf(ONE, 0x4000_0000, 0, ALL);
        let name: std::vec::Vec<u8> =
            [b, c, d].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!((last, &name[..]), (0x4000_0001, &b"KVMKVMKVM\0\0\0"[..]));
    }

    proptest! {
        #[test]
        fn any_leaf_has_an_answer(number: u32, sub: u32, of in 0_u32..64, words: [u32; 4]) {
            let vcpu = Vcpu { number: of, vcpus: 64, ..ONE };
            let _ = leaf(vcpu, number, sub, |_, _| words);
        }
    }
}
