//! `VTCR_EL2` and `VTTBR_EL2`, against what DDI 0487's pseudocode has a processor answer.

use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{Arm, ArmFeatures, ArmFwb, ArmUnsupported, Format, Level};
use proptest::prelude::*;

/// The ID registers of a processor, field by field.
#[derive(Clone, Copy, Debug)]
struct Processor {
    pa_range: u64,
    tgran4: u64,
    tgran4_2: u64,
    vmid_bits: u64,
    fwb: u64,
    /// All that is in the registers besides.
    others: [u64; 3],
}

impl Processor {
    fn features(&self) -> ArmFeatures {
        let put =
            |register: u64, shift: u32, field: u64| register & !(0xf << shift) | field << shift;
        let [mmfr0, mmfr1, mmfr2] = self.others;
        let mmfr0 = put(put(put(mmfr0, 0, self.pa_range), 28, self.tgran4), 40, self.tgran4_2);
        ArmFeatures::new(mmfr0, put(mmfr1, 4, self.vmid_bits), put(mmfr2, 40, self.fwb))
    }

    /// `AArch64.PAMax`.
    fn pa_max(&self) -> u64 {
        [32, 36, 40, 42, 44, 48, 52, 56][self.pa_range as usize]
    }

    /// `FEAT_S2TGran4K`: `UInt(TGran4_2) == 0 && FEAT_TGran4K || UInt(TGran4_2) >= 2`, where the former is
    /// `SInt(TGran4) >= 0`.
    fn has_granule(&self) -> bool {
        let signed = ((self.tgran4 as i8) << 4) >> 4;
        self.tgran4_2 == 0 && signed >= 0 || self.tgran4_2 >= 2
    }

    /// Whether a stage-2 walk gets past `AArch64.S2Translate`'s look at `vtcr`, where a processor may also take another
    /// size than it was told: that is no walk of our tables either. Returns the level that it begins at, and the number
    /// of tables side by side there.
    fn walks(&self, vtcr: u64) -> Option<(u64, u64)> {
        let field = |shift: u32, bits: u32| vtcr >> shift & ((1 << bits) - 1);
        let (t0sz, sl0, tg0, ds, sl2) =
            (field(0, 6), field(6, 2), field(14, 2), field(32, 1), field(33, 1));
        // TG0 0b00 is 4 KiB.
        if !self.has_granule() || (tg0, ds, sl2) != (0, 0, 0) {
            return None;
        }
        // AArch64.S2MinTxSZ, AArch64.MaxTxSZ without FEAT_TTST.
        let smallest = (64 - self.pa_max().min(48)).max(16);
        if t0sz < smallest || t0sz > 39 {
            return None;
        }
        // AArch64.S2InvalidSL.
        let start = match sl0 {
            0 => 2,
            1 => 1,
            2 if self.pa_max() >= 44 => 0,
            _ => return None,
        };
        // AArch64.S2InconsistentSL.
        let (granule_bits, stride, levels) = (12, 9, 3 - start);
        let least = levels * stride + granule_bits + 1;
        let most = least + (stride - 1) + 4;
        let bits = 64 - t0sz;
        if bits < least || bits > most {
            return None;
        }
        let by_one = (levels + 1) * stride + granule_bits;
        Some((start, 1 << bits.saturating_sub(by_one)))
    }
}

fn processor() -> impl Strategy<Value = Processor> {
    let tgran4 = prop::sample::select(vec![0, 1, 0xf]);
    (0..8_u64, tgran4, 0..4_u64, prop::sample::select(vec![0, 2]), 0..2_u64, any::<[u64; 3]>())
        .prop_map(|(pa_range, tgran4, tgran4_2, vmid_bits, fwb, others)| Processor {
            pa_range,
            tgran4,
            tgran4_2,
            vmid_bits,
            fwb,
            others,
        })
}

/// A format's register is refused just where no processor could walk its tables, and says what they are like.
fn check<const IPA_BITS: u32, const FWB: bool>(processor: &Processor) -> Result<(), TestCaseError> {
    let ipa_bits = u64::from(IPA_BITS);
    let vtcr = match Arm::<IPA_BITS, FWB>::vtcr(processor.features()) {
        Ok(vtcr) => vtcr,
        Err(ArmUnsupported::Granule) => {
            prop_assert!(!processor.has_granule());
            return Ok(());
        }
        Err(ArmUnsupported::IpaBits { ipa_bits: asked, pa_bits }) => {
            prop_assert_eq!(u64::from(asked), ipa_bits);
            prop_assert_eq!(u64::from(pa_bits), processor.pa_max().min(48));
            prop_assert!(ipa_bits > processor.pa_max());
            return Ok(());
        }
        Err(ArmUnsupported::Fwb) => {
            prop_assert!(FWB && processor.fwb == 0);
            return Ok(());
        }
        Err(error) => panic!("{error}"),
    };
    let start = match <Arm<IPA_BITS, FWB>>::TOP {
        Level::GIB512 => 0,
        Level::GIB1 => 1,
        other => panic!("a walk from {other:?}"),
    };
    let tables = 1 << <Arm<IPA_BITS, FWB>>::ROOT_ORDER;
    prop_assert_eq!(processor.walks(vtcr), Some((start, tables)), "{:#x}", vtcr);
    prop_assert!(!FWB || processor.fwb != 0);
    prop_assert_eq!(64 - (vtcr & 0x3f), ipa_bits);
    // IRGN0 and ORGN0 0b01, SH0 0b11.
    prop_assert_eq!(vtcr >> 8 & 0x3f, 0b11_01_01);
    // PS.
    prop_assert_eq!(vtcr >> 16 & 7, processor.pa_range.min(5));
    prop_assert_eq!(vtcr >> 19 & 1, u64::from(processor.vmid_bits == 2));
    // Nothing else but bit 31, which is RES1: HA and HD above all.
    prop_assert_eq!(vtcr >> 20, 1 << (31 - 20));
    Ok(())
}

macro_rules! check_all {
    ($processor:expr, $($bits:literal)*) => {
        $(
            check::<$bits, false>($processor)?;
            check::<$bits, true>($processor)?;
        )*
    };
}

proptest! {
    #[test]
    fn vtcr_has_a_processor_walk_the_tables_or_says_why_it_cannot(processor in processor()) {
        check_all!(&processor, 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48);
    }
}

#[test]
fn vtcr_is_as_worked_out_by_hand() {
    // Cortex-A72: PARange 0b0100 (44 bits), TGran4 0, TGran4_2 0, 8 bits of VMID, no FWB.
    let a72 = ArmFeatures::new(0x1124, 0, 0);
    // T0SZ 24, SL0 1, walks 0x3500, PS 4, RES1.
    assert_eq!(<Arm<40>>::vtcr(a72), Ok(0x8004_3558));
    // T0SZ 20, SL0 2.
    assert_eq!(<Arm<44>>::vtcr(a72), Ok(0x8004_3594));
    assert_eq!(<Arm<48>>::vtcr(a72), Err(ArmUnsupported::IpaBits { ipa_bits: 48, pa_bits: 44 }));
    assert_eq!(<ArmFwb<40>>::vtcr(a72), Err(ArmUnsupported::Fwb));
    // 52 bits, VMIDs of 16 bits, FWB: PS stays 5, VS is set.
    let large = ArmFeatures::new(6, 2 << 4, 1 << 40);
    assert_eq!(<ArmFwb<48>>::vtcr(large), Ok(0x800d_3590));
    assert_eq!([<Arm<48>>::HCR, <ArmFwb<48>>::HCR], [0, 1 << 46]);
}

#[test]
fn vttbr_has_the_table_and_the_vmid_and_is_nobody_elses() {
    let vttbr = <Arm<48>>::vttbr(Pfn::new(0xf_1234_5678), Vmid(0xabcd));
    assert_eq!(vttbr, 0xabcd_f123_4567_8000);
}

#[test]
fn several_processors_have_what_all_of_them_have() {
    let [small, large] =
        [ArmFeatures::new(0x1124, 0, 1 << 40), ArmFeatures::new(5, 2 << 4, 1 << 40)];
    for both in [small.and(large), large.and(small)] {
        assert_eq!((both.pa_bits(), both.vmid_bits(), both.has_fwb()), (44, 8, true));
    }
    let without = ArmFeatures::new(5 | 1 << 40, 0, 0);
    let both = large.and(without);
    assert_eq!((both.pa_bits(), both.has_granule(), both.has_fwb()), (48, false, false));
    assert_eq!(<Arm<48>>::vtcr(both), Err(ArmUnsupported::Granule));
}
