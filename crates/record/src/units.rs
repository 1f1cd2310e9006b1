//! Numbers that a person can quote as they stand.
//!
//! Three significant digits, in ASCII (`us`, not `µs`): the output is pasted into mails.

/// A duration in nanoseconds: `840 ns`, `7.51 ms`, `1.20 s`.
///
/// Whole nanoseconds are never split, since nothing here measures them; from a thousand seconds on all
/// digits are shown.
pub fn duration(nanoseconds: u64) -> String {
    if nanoseconds < 1000 {
        return format!("{nanoseconds} ns");
    }
    let mut value = nanoseconds as f64 / 1e3;
    let mut unit = "us";
    for larger in ["ms", "s"] {
        // Where rounding to three digits would give 1000 of a unit, it is one of the next.
        if value < 999.5 {
            break;
        }
        value /= 1e3;
        unit = larger;
    }
    format!("{} {unit}", three_digits(value))
}

/// How many times as large as something: `1.02x`, `18.1x`, `8941x`.
pub fn ratio(times: f64) -> String {
    format!("{}x", three_digits(times))
}

/// Three digits, none behind the point once there are three before it; at most three behind it.
fn three_digits(value: f64) -> String {
    let decimals = match value {
        ..0.9995 => 3,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_have_three_significant_digits_and_the_unit_that_fits() {
        for (ns, text) in [
            (0, "0 ns"),
            (7, "7 ns"),
            (840, "840 ns"),
            (999, "999 ns"),
            (1000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_995, "10.0 us"),
            (99_949, "99.9 us"),
            (99_950, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (7_512_345, "7.51 ms"),
            (999_999_999, "1.00 s"),
            (1_200_000_000, "1.20 s"),
            (60_000_000_000, "60.0 s"),
            (1_234_567_890_123, "1235 s"),
        ] {
            assert_eq!(duration(ns), text, "{ns}");
        }
    }

    #[test]
    fn ratios_keep_three_digits_and_grow_whole() {
        for (times, text) in [
            (1.0, "1.00x"),
            (0.004, "0.004x"),
            (0.9994, "0.999x"),
            (0.9996, "1.00x"),
            (9.999, "10.0x"),
            (18.14, "18.1x"),
            (8941.3, "8941x"),
        ] {
            assert_eq!(ratio(times), text);
        }
    }

    fn read_back(text: &str) -> f64 {
        let (number, unit) = text.split_once(' ').unwrap();
        let scale = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => panic!("{unit}"),
        };
        number.parse::<f64>().unwrap() * scale
    }

    proptest! {
        #[test]
        fn a_printed_duration_is_within_half_a_percent_of_the_measured_one(bits in 0..64_u32, low in any::<u64>()) {
            let ns = low >> bits;
            let text = duration(ns);
            prop_assert!((read_back(&text) - ns as f64).abs() <= ns as f64 * 0.005_01, "{} for {}", text, ns);
            prop_assert!(text.is_ascii());
        }

        #[test]
        fn a_longer_duration_never_prints_as_a_shorter_one(bits in 0..64_u32, low in any::<u64>(), more in 0..1_000_000_u64) {
            let ns = low >> bits;
            prop_assert!(read_back(&duration(ns)) <= read_back(&duration(ns.saturating_add(more))));
        }
    }
}
