//! The right side of a threshold: a comparison, and the number or the time that it is with.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// In nanoseconds.
    Time(f64),
    Number(f64),
}

impl Comparison {
    /// The comparison that `text` begins with, and what follows it.
    pub(super) fn begins(text: &str) -> Option<(Self, &str)> {
        // The longer signs first: the others are their beginnings.
        [(">=", Self::AtLeast), ("<=", Self::AtMost), (">", Self::Above), ("<", Self::Below)]
            .into_iter()
            .find_map(|(sign, comparison)| Some((comparison, text.strip_prefix(sign)?)))
    }

    pub(super) fn holds(self, number: f64, bound: f64) -> bool {
        match self {
            Self::Above => number > bound,
            Self::AtLeast => number >= bound,
            Self::Below => number < bound,
            Self::AtMost => number <= bound,
        }
    }

    /// Whether it holds for small numbers.
    pub(super) fn is_below(self) -> bool {
        matches!(self, Self::Below | Self::AtMost)
    }
}

impl Bound {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let scaled = |unit: &str, scale: f64| {
            Some(Self::Time(number(text.strip_suffix(unit)?.trim_end())? * scale))
        };
        // Those that end in an s before it.
        scaled("ns", 1.0)
            .or_else(|| scaled("us", 1e3))
            .or_else(|| scaled("ms", 1e6))
            .or_else(|| scaled("s", 1e9))
            .or_else(|| Some(Self::Number(number(text)?)))
    }
}

/// A finite number in digits; Rust's own parser knows `inf` and `nan`, too.
fn number(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|number: &f64| is_plain && number.is_finite())
}
