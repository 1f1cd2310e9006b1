//! What is injected into a guest (APM volume 2, 15.20), and what was under way when it came out (15.7.2).

/// An exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// `#DB`.
    Debug,
    /// `#UD`: there is no such instruction.
    Undefined,
    /// `#GP(0)`.
    GeneralProtection,
    /// `#AC(0)`.
    AlignmentCheck,
}

const VALID: u64 = 1 << 31;
const HAS_CODE: u64 = 1 << 11;
const NMI: u64 = 2 << 8;
const EXCEPTION: u64 = 3 << 8;
const SOFTWARE: u64 = 4 << 8;
const KIND: u64 = 7 << 8;
const BREAKPOINT: u64 = 3;
const OVERFLOW: u64 = 4;

/// The word that has the guest take an interrupt of this vector.
pub const fn interrupt(vector: u8) -> u64 {
    VALID | vector as u64
}

/// The word that has the guest take a non-maskable interrupt.
pub const fn nmi() -> u64 {
    VALID | NMI | 2
}

/// The word that has the guest take an exception.
pub const fn exception(exception: Exception) -> u64 {
    VALID
        | EXCEPTION
        | match exception {
            Exception::Debug => 1,
            Exception::Undefined => 6,
            Exception::GeneralProtection => HAS_CODE | 0xd,
            Exception::AlignmentCheck => HAS_CODE | 0x11,
        }
}

/// The word that has the guest take what it was taking when it came out, if it was taking something. What its own
/// instruction has asked for, `INT n`, `INT3` or `INTO`, the instruction asks for again: the guest is before it still.
pub const fn again(under_way: u64) -> Option<u64> {
    if under_way & VALID == 0 {
        return None;
    }
    let vector = under_way & 0xff;
    match under_way & KIND {
        SOFTWARE => None,
        EXCEPTION if vector == BREAKPOINT || vector == OVERFLOW => None,
        _ => Some(under_way),
    }
}

/// Whether a word has the guest take an exception.
pub const fn is_exception(word: u64) -> bool {
    word & (VALID | KIND) == VALID | EXCEPTION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_the_manual_has_for_it() {
        assert_eq!(interrupt(0x31), 0x8000_0031);
        assert_eq!(nmi(), 0x8000_0202);
        assert_eq!(exception(Exception::GeneralProtection), 0x8000_0b0d);
        assert_eq!(exception(Exception::Undefined), 0x8000_0306);
    }

    #[test]
    fn what_an_instruction_asks_for_is_left_to_the_instruction() {
        assert_eq!(again(0x8000_0480), None);
        assert_eq!(again(0x8000_0303), None);
        assert_eq!(again(0x0000_0031), None);
        for word in [interrupt(0x31), nmi(), exception(Exception::GeneralProtection), 0xe_8000_0b0e]
        {
            assert_eq!(again(word), Some(word));
        }
        assert!(is_exception(exception(Exception::Debug)) && !is_exception(0x301));
        assert!(!is_exception(nmi()) && !is_exception(interrupt(3)));
    }
}
