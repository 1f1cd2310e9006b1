//! The choice among Arm's formats when the program runs.

use mayfly_stage2::{Arm, ArmChoice, ArmFeatures, ArmIpa, ArmUnsupported, Format, WithArm};

/// A processor with 4 KiB at stage 2.
fn processor(pa_range: u64, fwb: bool) -> ArmFeatures {
    ArmFeatures::new(pa_range, 0, u64::from(fwb) << 40)
}

/// What there is to be known of a format.
struct Facts;

impl WithArm for Facts {
    type Output = (u32, bool, u64);

    fn with<const IPA_BITS: u32, const FWB: bool>(self) -> Self::Output {
        let format = (<Arm<IPA_BITS, FWB>>::COHERENT, <Arm<IPA_BITS, FWB>>::HCR);
        (<Arm<IPA_BITS, FWB> as Format>::IPA_BITS, format.0, format.1)
    }
}

#[test]
fn every_size_that_a_processor_can_have_gets_the_smallest_format_that_holds_it() {
    for (pa_range, pa_bits) in [(0, 32), (1, 36), (2, 40), (3, 42), (4, 44), (5, 48), (6, 48)] {
        for fwb in [false, true] {
            let processor = processor(pa_range, fwb);
            for asked in 0..=64 {
                let chosen = processor.choose(asked);
                if asked > pa_bits {
                    let refused = ArmUnsupported::IpaBits { ipa_bits: asked, pa_bits };
                    assert_eq!(chosen, Err(refused));
                    continue;
                }
                let chosen = chosen.unwrap();
                let bits =
                    [32, 36, 40, 42, 44, 48].into_iter().find(|bits| *bits >= asked).unwrap();
                assert_eq!((chosen.ipa().bits(), chosen.forces_write_back()), (bits, fwb));
                assert_eq!(64 - (chosen.vtcr() & 0x3f), u64::from(bits));
                assert_eq!(chosen.with(Facts), (bits, fwb, chosen.hcr()));
                assert_eq!(chosen.hcr(), u64::from(fwb) << 46);
            }
        }
    }
}

#[test]
fn without_the_granule_there_is_nothing_to_choose() {
    let processor = ArmFeatures::new(5 | 1 << 40, 0, 0);
    let chosen: Result<ArmChoice, _> = processor.choose(40);
    assert_eq!(chosen, Err(ArmUnsupported::Granule));
}

#[test]
fn sizes_are_named_by_their_bits() {
    for (size, bits) in ArmIpa::ALL.into_iter().zip([32, 36, 40, 42, 44, 48]) {
        assert_eq!((size.bits(), ArmIpa::with_bits(bits)), (bits, Some(size)));
    }
    assert_eq!(ArmIpa::with_bits(49), None);
}
