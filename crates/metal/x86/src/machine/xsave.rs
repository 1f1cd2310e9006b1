//! The vector state that a guest has beyond that of FXSAVE: what XSAVE saves, and XCR0 turns on (AMD APM volume 2, 11.5).
//!
//! Of the bits of XCR0 a guest has those of x87, SSE and AVX, as far as its machine does. XCR0 is not among what VMRUN moves.
//!
//! A write of XCR0 comes out and is checked. But QEMU 7.2's TCG brings nobody out for it. There a guest can turn on what its
//! CPUID does not list, so all that the machine has goes with a vCPU.

use super::msr::Refused;

const X87: u64 = 1 << 0;
const SSE: u64 = 1 << 1;
/// The upper halves of the registers of 256 bits.
pub const AVX: u64 = 1 << 2;

/// Where AVX has its part of the area in memory, and how many bytes, on every processor that has it.
const AVX_BYTES: u32 = 256;
const AVX_AT: u32 = 576;
/// Bytes of an area: more than AVX-512 and protection keys take.
pub const AREA_BYTES: usize = 4096;
/// Where an area has `MXCSR`, which is loaded from there in any case.
pub const MXCSR_AT: usize = 24;
/// What `MXCSR` is after reset.
pub const MXCSR: u32 = 0x1f80;

/// `CPUID.1:ECX`: XSAVE, and AVX.
pub const HAS_XSAVE: u32 = 1 << 26;
const HAS_AVX: u32 = 1 << 28;
const LEAF: u32 = 0xd;

/// What of it a vCPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xsave {
    /// The bits of XCR0 that there are: none without XSAVE.
    pub bits: u64,
    /// The bits of the machine's XCR0 whose state goes with the vCPU: all that it has if an area has room for them.
    pub saved: u64,
    /// XCR0.
    pub xcr0: u64,
    /// `CR4.OSXSAVE`.
    pub is_on: bool,
}

impl Xsave {
    /// As after reset, on a machine whose processor reads `machine`.
    pub fn reset(machine: impl Fn(u32, u32) -> [u32; 4]) -> Self {
        let bits = bits(&machine);
        let [low, _, size, high] = machine(LEAF, 0);
        let has_room = bits != 0 && size as usize <= AREA_BYTES;
        let saved = if has_room { u64::from(high) << 32 | u64::from(low) } else { bits };
        Self { bits, saved, xcr0: X87, is_on: false }
    }

    /// Leaf 0xd of CPUID, but for what of its second part is the machine's.
    pub const fn leaf(self, sub: u32) -> [u32; 4] {
        match sub {
            0 if self.bits != 0 => [self.bits as u32, bytes(self.xcr0), bytes(self.bits), 0],
            2 if self.bits & AVX != 0 => [AVX_BYTES, AVX_AT, 0, 0],
            _ => [0; 4],
        }
    }

    /// What XCR0 becomes if the guest writes `value`.
    ///
    /// # Errors
    ///
    /// A bit that there is not, AVX without SSE, or no x87.
    pub const fn write(self, value: u64) -> Result<u64, Refused> {
        let lacks = value & X87 == 0 || value & AVX != 0 && value & SSE == 0;
        if value & !self.bits != 0 || lacks { Err(Refused) } else { Ok(value) }
    }
}

/// The bits of XCR0 that a guest has.
fn bits(machine: impl Fn(u32, u32) -> [u32; 4]) -> u64 {
    if machine(0, 0)[0] < LEAF || machine(1, 0)[2] & HAS_XSAVE == 0 {
        return 0;
    }
    let has = u64::from(machine(LEAF, 0)[0]);
    if has & (X87 | SSE) != X87 | SSE {
        return 0;
    }
    let [size, place, ..] = machine(LEAF, 2);
    let has_avx =
        has & AVX != 0 && machine(1, 0)[2] & HAS_AVX != 0 && (size, place) == (AVX_BYTES, AVX_AT);
    X87 | SSE | if has_avx { AVX } else { 0 }
}

/// Bytes of an area with the state of these bits.
const fn bytes(xcr0: u64) -> u32 {
    if xcr0 & AVX != 0 { AVX_AT + AVX_BYTES } else { AVX_AT }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor with these bits of XCR0, where AVX has its part at `place`.
    fn machine(bits: u32, place: u32) -> impl Fn(u32, u32) -> [u32; 4] {
        move |leaf, sub| match (leaf, sub) {
            (0, _) => [0x10, 0, 0, 0],
            (1, _) => [0, 0, HAS_XSAVE | HAS_AVX, 0],
            (0xd, 0) => [bits, 576, 0xa80, 0],
            (0xd, 2) => [256, place, 0, 0],
            _ => [u32::MAX; 4],
        }
    }

    #[test]
    fn a_guest_has_x87_sse_and_avx_as_far_as_its_machine_has() {
        assert_eq!(bits(machine(0x2e7, 576)), 7, "not MPX, AVX-512 and protection keys");
        assert_eq!(bits(machine(0x2e7, 640)), 3, "AVX is where it cannot be saved");
        assert_eq!(bits(machine(3, 576)), 3);
        assert_eq!(bits(machine(1, 576)), 0);
        let old = |leaf, sub| if leaf == 0 { [0xc, 0, 0, 0] } else { machine(7, 576)(leaf, sub) };
        assert_eq!(bits(old), 0);
        let without = |leaf, sub| if leaf == 1 { [0; 4] } else { machine(7, 576)(leaf, sub) };
        assert_eq!(bits(without), 0);
    }

    #[test]
    fn all_that_the_machine_has_goes_with_a_vcpu() {
        let saved = |machine: &dyn Fn(u32, u32) -> [u32; 4]| Xsave::reset(machine).saved;
        let all = machine(0x2e7, 576);
        assert_eq!(saved(&all), 0x2e7);
        // One with AMX, for which there is no room.
        let large = |leaf, sub| {
            if (leaf, sub) == (0xd, 0) { [0x6_02e7, 576, 11_008, 0] } else { all(leaf, sub) }
        };
        assert_eq!(saved(&large), 7);
        assert_eq!(saved(&machine(1, 576)), 0);
    }

    #[test]
    fn the_size_of_an_area_is_that_of_what_is_on() {
        let mut xsave = Xsave::reset(machine(7, 576));
        assert_eq!(xsave.leaf(0), [7, 576, 832, 0]);
        xsave.xcr0 = 7;
        assert_eq!(xsave.leaf(0), [7, 832, 832, 0]);
        assert_eq!(xsave.leaf(2), [256, 576, 0, 0]);
        assert_eq!(xsave.leaf(3), [0; 4]);
        let without_avx = Xsave::reset(machine(3, 576));
        assert_eq!((without_avx.leaf(0), without_avx.leaf(2)), ([3, 576, 576, 0], [0; 4]));
        let none = Xsave::reset(|_, _| [0; 4]);
        assert_eq!((none.bits, none.leaf(0)), (0, [0; 4]));
    }

    #[test]
    fn xcr0_takes_what_there_is_in_its_order() {
        let xsave = Xsave::reset(machine(7, 576));
        for value in 0..0x400 {
            let is_taken = [1, 3, 7].contains(&value);
            assert_eq!(xsave.write(value), if is_taken { Ok(value) } else { Err(Refused) });
        }
        assert_eq!(xsave.write(1 << 63 | 1), Err(Refused));
        let none = Xsave { bits: 0, ..xsave };
        assert_eq!(none.write(1), Err(Refused));
    }
}
