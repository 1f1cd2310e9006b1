//! Sizes of memory, as a user writes them.

use std::fmt;
use std::str::FromStr;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Suffixes in small letters, and what they multiply by; the longer before the shorter.
const UNITS: [(&str, u64); 8] = [
    ("kib", KIB),
    ("mib", MIB),
    ("gib", GIB),
    ("tib", 1024 * GIB),
    ("k", KIB),
    ("m", MIB),
    ("g", GIB),
    ("t", 1024 * GIB),
];

/// Digits behind the point that are read.
const MOST_DECIMALS: usize = 9;

/// A size of memory: a multiple of [`Size::UNIT`] from that to [`Size::MAX`].
///
/// Written as a number with a unit: K, M, G or T, or the same as KiB, MiB, GiB or TiB, in whatever letters; all are
/// powers of 1024. `1.5g` is `1536MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// The parameter's name on the command line, without the dashes, and in records.
    pub const PARAM: &'static str = "memory";

    /// Sizes are multiples of a block of 2 MiB, so that memory can be mapped in such throughout.
    pub const UNIT: Self = Self(2 * MIB);

    /// The largest: 1024 GiB.
    pub const MAX: Self = Self(1024 * GIB);

    /// So many times 2 MiB.
    ///
    /// # Panics
    ///
    /// Where that is no size: at compile time, if the caller is a constant.
    pub const fn blocks(count: u64) -> Self {
        assert!(count > 0 && count <= Self::MAX.0 / Self::UNIT.0);
        Self(count * Self::UNIT.0)
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    /// In the largest unit of which it is a multiple: `1 GiB`, `1538 MiB`. Reads back as the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, bytes) = if self.0.is_multiple_of(GIB) { ("GiB", GIB) } else { ("MiB", MIB) };
        f.pad(&format!("{} {unit}", self.0 / bytes))
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let small = text.to_ascii_lowercase();
        let size = UNITS
            .iter()
            .find_map(|&(suffix, unit)| times(small.strip_suffix(suffix)?.trim_end(), unit));
        size.filter(|bytes| (Self::UNIT.0..=Self::MAX.0).contains(bytes))
            .filter(|bytes| bytes.is_multiple_of(Self::UNIT.0))
            .map(Self)
            .ok_or_else(|| {
                format!(
                    "accepted are multiples of {} up to {}, in K, M, G, T or KiB, MiB, GiB, TiB",
                    Self::UNIT,
                    Self::MAX
                )
            })
    }
}

/// So many times `unit`, if that is a whole number.
fn times(number: &str, unit: u64) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > MOST_DECIMALS {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(decimals.len()).ok()?);
    let number = whole.parse::<u128>().ok()?.checked_mul(scale)? + decimals.parse::<u128>().ok()?;
    let bytes = number.checked_mul(unit.into())?;
    bytes.is_multiple_of(scale).then(|| u64::try_from(bytes / scale).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_size_is_a_number_with_a_unit_of_any_spelling() {
        for (text, bytes, shown) in [
            ("2M", 2 * MIB, "2 MiB"),
            ("2MiB", 2 * MIB, "2 MiB"),
            ("2048K", 2 * MIB, "2 MiB"),
            ("2048KiB", 2 * MIB, "2 MiB"),
            ("1G", GIB, "1 GiB"),
            ("1024MiB", GIB, "1 GiB"),
            ("0064GiB", 64 * GIB, "64 GiB"),
            ("1024GiB", 1024 * GIB, "1024 GiB"),
            ("1t", 1024 * GIB, "1024 GiB"),
            ("1g", GIB, "1 GiB"),
            ("1.5GiB", 3 * GIB / 2, "1536 MiB"),
            ("1 gib", GIB, "1 GiB"),
            ("0.001953125G", 2 * MIB, "2 MiB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, shown), "{text}");
        }
        assert_eq!(Size::blocks(512).bytes(), GIB);
    }

    #[test]
    fn anything_else_is_refused_with_what_would_be_accepted() {
        for text in [
            "",
            "G",
            "GiB",
            "1",
            "1GB",
            "1Gi",
            "+1G",
            "-1G",
            "1.5.5G",
            ".5G",
            "1.G",
            "1.0000000001G",
            "1.001M",
            "1e3M",
            "0G",
            "1M",
            "3M",
            "2K",
            "1025GiB",
            "1.1TiB",
            "2TiB",
            "99999999999999999999G",
            "18014398509481984K",
            "1G,",
            "１G",
        ] {
            let message = text.parse::<Size>().unwrap_err();
            assert!(message.contains("2 MiB up to 1024 GiB"), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn every_size_reads_back_from_what_it_shows(blocks in 1..=1024 * GIB / (2 * MIB)) {
            let size = Size::blocks(blocks);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn text_of_any_kind_is_refused_or_within_the_bounds(text in "\\PC*") {
            if let Ok(size) = text.parse::<Size>() {
                prop_assert!(size >= Size::UNIT && size <= Size::MAX);
            }
        }
    }
}
