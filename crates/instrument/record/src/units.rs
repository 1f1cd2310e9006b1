//! Numbers that a person can quote as they stand.
//!
//! Three significant digits, in ASCII (`us`, not `µs`): the output is pasted into mails.

use std::time::Duration;

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

/// A time that is guessed: `about 3 s`, `about 40 s`, `about 4 min`. One digit of it, or whole minutes.
pub fn about(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds @ ..9.5 => format!("about {:.0} s", seconds.max(1.0)),
        seconds @ ..95.0 => format!("about {:.0} s", (seconds / 10.0).round() * 10.0),
        seconds => format!("about {:.0} min", seconds / 60.0),
    }
}

/// A number of bytes: `640 KiB`, `2.07 GiB`.
pub fn bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = "KiB";
    for larger in ["MiB", "GiB", "TiB"] {
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    let number = if value.fract() > 0.0 { three_digits(value) } else { value.to_string() };
    format!("{number} {unit}")
}

/// A share, in per cent: `0.4%`, `12%`.
pub fn percent(share: f64) -> String {
    let decimals = usize::from(share < 0.0995);
    format!("{:.decimals$}%", share * 100.0)
}

/// How many times as large as something: `1.02x`, `18.1x`, `8941x`.
pub fn ratio(times: f64) -> String {
    format!("{}x", three_digits(times))
}

/// So many of what can be counted: `1 vCPU`, `16 vCPUs`.
pub fn things(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A number of things, its digits in threes: `2,110,320,640`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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

/// What one of these shows, where it is round: without the digits that say nothing.
pub fn rounded(shown: &str) -> String {
    match shown.split_once(' ') {
        Some((digits, unit)) if digits.contains('.') => {
            format!("{} {unit}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => shown.to_owned(),
    }
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
    fn one_thing_is_no_plural() {
        let told = [0, 1, 2].map(|number| things(number, "vCPU"));
        assert_eq!(told, ["0 vCPUs", "1 vCPU", "2 vCPUs"]);
    }

    #[test]
    fn digits_stand_in_threes() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (12_345_678, "12,345,678"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(grouped(number), text);
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

    #[test]
    fn a_guessed_time_claims_no_more_than_a_digit() {
        for (seconds, text) in [
            (0.0, "about 1 s"),
            (2.6, "about 3 s"),
            (12.4, "about 10 s"),
            (88.0, "about 90 s"),
            (100.0, "about 2 min"),
            (3600.0, "about 60 min"),
        ] {
            assert_eq!(about(Duration::from_secs_f64(seconds)), text);
        }
    }

    #[test]
    fn shares_are_in_per_cent_with_two_digits() {
        for (share, text) in [(0.0, "0.0%"), (0.004, "0.4%"), (0.0996, "10%"), (1.5, "150%")] {
            assert_eq!(percent(share), text);
        }
    }

    #[test]
    fn bytes_are_counted_in_powers_of_1024() {
        for (count, text) in [
            (0, "0 B"),
            (1024, "1 KiB"),
            (640 << 10, "640 KiB"),
            (1000 << 10, "0.977 MiB"),
            (4_000_000_000, "3.73 GiB"),
            (64 << 30, "64 GiB"),
            (1 << 40, "1 TiB"),
        ] {
            assert_eq!(bytes(count), text);
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

    #[test]
    fn round_numbers_lose_the_digits_that_say_nothing() {
        for (shown, round) in
            [("1.00 ms", "1 ms"), ("2.50 us", "2.5 us"), ("100 ns", "100 ns"), ("1,000", "1,000")]
        {
            assert_eq!(rounded(shown), round);
        }
    }
}
