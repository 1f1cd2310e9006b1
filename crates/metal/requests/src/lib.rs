//! A web server that says which fork of a VM it runs in, and what asks many of them at once.

#![forbid(unsafe_code)]

pub mod answer;
pub mod ask;

/// What a fork of this number answers.
pub fn body(number: u64) -> String {
    format!("fork {number} answers\n")
}

/// The number that an answer has. A VM that is no fork has 0.
pub fn number(body: &[u8]) -> Option<u64> {
    let digits = body.strip_prefix(b"fork ")?.strip_suffix(b" answers\n")?;
    // Not `+7`, which is a number as well.
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    core::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_said_is_read_and_nothing_else() {
        for number in [0, 7, u64::MAX] {
            assert_eq!(super::number(super::body(number).as_bytes()), Some(number));
        }
        for wrong in
            ["", "fork 7 answers", "fork  answers\n", "fork +7 answers\n", "fork 7 answers\n\n"]
        {
            assert_eq!(super::number(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(super::number(b"fork 18446744073709551616 answers\n"), None);
    }
}
