//! What a record has of a metric with more samples than it keeps: a histogram for each round.
//!
//! Three significant digits, as an `HdrHistogram` (hdrhistogram.org) in its compressed second form, in base64: `HISTFAAA...`,
//! which tools of other languages read as well.

use std::iter::repeat_n;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Significant digits that are kept of each sample.
const DIGITS: u8 = 3;

/// Samples of a metric beyond which no record of ours goes: a few bytes may claim to be any number of them.
const MOST: usize = 20_000_000;

/// The samples of each round; `None` where one is beyond what a histogram holds.
pub(crate) fn encode<'a>(rounds: impl IntoIterator<Item = &'a [u64]>) -> Option<Vec<String>> {
    rounds.into_iter().map(encode_round).collect()
}

fn encode_round(samples: &[u64]) -> Option<String> {
    let mut histogram = Histogram::<u64>::new(DIGITS).ok()?;
    for sample in samples {
        histogram.record(*sample).ok()?;
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&histogram, &mut bytes).ok()?;
    Some(STANDARD.encode(bytes))
}

/// The samples of each round, sorted, each with three significant digits; `None` where a text is no histogram, or where
/// they are too many.
pub(crate) fn decode(rounds: &[String]) -> Option<Vec<Vec<u64>>> {
    let mut left = MOST;
    rounds.iter().map(|text| decode_round(text, &mut left)).collect()
}

fn decode_round(text: &str, left: &mut usize) -> Option<Vec<u64>> {
    let bytes = STANDARD.decode(text).ok()?;
    let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).ok()?;
    *left = left.checked_sub(usize::try_from(histogram.len()).ok()?)?;
    let mut samples = Vec::new();
    for bucket in histogram.iter_recorded() {
        let value = histogram.median_equivalent(bucket.value_iterated_to());
        samples.extend(repeat_n(value, usize::try_from(bucket.count_at_value()).ok()?));
    }
    Some(samples)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn samples_come_back_sorted_and_within_a_thousandth(
            mut samples in prop::collection::vec(0..u64::MAX / 4, 1..50),
        ) {
            let encoded = encode([&samples[..]]).unwrap();
            prop_assert!(encoded[0].starts_with("HISTFAAA"));
            samples.sort_unstable();
            let decoded = decode(&encoded).unwrap().remove(0);
            prop_assert_eq!(decoded.len(), samples.len());
            for (was, is) in samples.into_iter().zip(decoded) {
                prop_assert!(was.abs_diff(is) <= was / 1000, "{} {}", was, is);
            }
        }

        #[test]
        fn what_is_no_histogram_is_none_and_no_panic(text in ".{0,60}", at in 0..80_usize) {
            prop_assert_eq!(decode(&[text]), None);
            let mut damaged = encode([&[1, 2, 3_000_000][..]]).unwrap().remove(0).into_bytes();
            let at = at % damaged.len();
            damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
            let _ = decode(&[String::from_utf8(damaged).unwrap()]);
        }
    }

    #[test]
    fn a_few_bytes_that_claim_to_be_a_billion_samples_take_no_memory() {
        let mut histogram = Histogram::<u64>::new(DIGITS).unwrap();
        histogram.record_n(7, 1_000_000_000).unwrap();
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&histogram, &mut bytes).unwrap();
        assert_eq!(decode(&[STANDARD.encode(bytes)]), None);
    }
}
