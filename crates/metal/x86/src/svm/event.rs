//! What is injected into a guest (APM volume 2, 15.20), and what was under way when it came out (15.7.2).

/// An exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// `#DB`.
    Debug,
    /// `#UD`: there is no such instruction.
    Undefined,
    /// `#DF(0)`.
    DoubleFault,
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

impl Exception {
    const fn vector(self) -> u8 {
        match self {
            Self::Debug => 1,
            Self::Undefined => 6,
            Self::DoubleFault => 8,
            Self::GeneralProtection => 0xd,
            Self::AlignmentCheck => 0x11,
        }
    }
}

/// The word that has the guest take an exception. There are error codes in protected mode alone (8.2): `CR0.PE` is set.
pub const fn exception(exception: Exception, protected: bool) -> u64 {
    let code = match exception {
        Exception::Debug | Exception::Undefined => 0,
        _ if !protected => 0,
        _ => HAS_CODE,
    };
    VALID | EXCEPTION | code | exception.vector() as u64
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

/// What a guest takes of an exception, and of what it was taking when it raised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// This.
    Takes(u64),
    /// This; the interrupt of this vector, which it has accepted from its APIC, comes behind it.
    Displaces(u64, u8),
    /// This; the non-maskable interrupt comes behind it.
    DisplacesNmi(u64),
    /// It shuts down.
    ShutsDown,
}

/// What a guest takes that raises an exception, and was taking this: a word, as of [`again`].
pub const fn meet(under_way: Option<u64>, raised: Exception, protected: bool) -> Met {
    let word = exception(raised, protected);
    let Some(first) = under_way else { return Met::Takes(word) };
    match first & KIND {
        EXCEPTION => match second(first as u8, raised.vector()) {
            Second::Alone => Met::Takes(word),
            Second::DoubleFault => Met::Takes(exception(Exception::DoubleFault, protected)),
            Second::ShutsDown => Met::ShutsDown,
        },
        NMI => Met::DisplacesNmi(word),
        _ => Met::Displaces(word, first as u8),
    }
}

/// What comes of a second exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    /// It is taken. An instruction that has raised the first raises it again.
    Alone,
    DoubleFault,
    ShutsDown,
}

/// Of an exception that is raised while another is taken, by their vectors (APM volume 2, 8.2.9).
const fn second(first: u8, second: u8) -> Second {
    const PAGE_FAULT: u8 = 14;
    const DOUBLE_FAULT: u8 = 8;
    // #DE, #TS, #NP, #SS and #GP.
    const fn contributes(vector: u8) -> bool {
        matches!(vector, 0 | 10..=13)
    }
    match first {
        DOUBLE_FAULT => Second::ShutsDown,
        PAGE_FAULT if second == PAGE_FAULT || contributes(second) => Second::DoubleFault,
        _ if contributes(first) && contributes(second) => Second::DoubleFault,
        _ => Second::Alone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_the_manual_has_for_it() {
        assert_eq!(interrupt(0x31), 0x8000_0031);
        assert_eq!(nmi(), 0x8000_0202);
        assert_eq!(exception(Exception::GeneralProtection, true), 0x8000_0b0d);
        assert_eq!(exception(Exception::AlignmentCheck, true), 0x8000_0b11);
        assert_eq!(exception(Exception::DoubleFault, true), 0x8000_0b08);
        assert_eq!(exception(Exception::Undefined, true), 0x8000_0306);
    }

    #[test]
    fn there_is_no_error_code_in_real_mode() {
        use Exception::{AlignmentCheck, Debug, DoubleFault, GeneralProtection, Undefined};
        for raised in [Debug, Undefined, DoubleFault, GeneralProtection, AlignmentCheck] {
            let word = exception(raised, false);
            assert_eq!(word, 0x8000_0300 | u64::from(raised.vector()), "{raised:?}");
        }
    }

    /// The table of 8.2.9, with all others beside it.
    #[test]
    fn a_second_exception_is_taken_is_a_double_fault_or_shuts_down() {
        let contributory = [0_u8, 10, 11, 12, 13];
        for first in 0..32 {
            for then in 0..32 {
                let both = (contributory.contains(&first) || first == 14)
                    && contributory.contains(&then)
                    || (first, then) == (14, 14);
                let expected = match (first == 8, both) {
                    (true, _) => Second::ShutsDown,
                    (false, true) => Second::DoubleFault,
                    (false, false) => Second::Alone,
                };
                assert_eq!(second(first, then), expected, "{then} in {first}");
            }
        }
    }

    #[test]
    fn what_a_guest_was_taking_meets_what_it_raises() {
        use Exception::{AlignmentCheck, Debug, DoubleFault, GeneralProtection, Undefined};
        let word = |raised| exception(raised, true);
        let met = |under_way, raised| meet(Some(under_way), raised, true);
        assert_eq!(meet(None, Undefined, true), Met::Takes(word(Undefined)));
        assert_eq!(met(word(GeneralProtection), Debug), Met::Takes(word(Debug)));
        assert_eq!(
            met(word(AlignmentCheck), GeneralProtection),
            Met::Takes(word(GeneralProtection))
        );
        assert_eq!(met(word(GeneralProtection), AlignmentCheck), Met::Takes(word(AlignmentCheck)));
        assert_eq!(met(word(GeneralProtection), GeneralProtection), Met::Takes(word(DoubleFault)));
        // A page fault, with its code.
        assert_eq!(met(0x6_8000_0b0e, GeneralProtection), Met::Takes(word(DoubleFault)));
        assert_eq!(met(word(DoubleFault), GeneralProtection), Met::ShutsDown);
        assert_eq!(
            met(interrupt(0x31), AlignmentCheck),
            Met::Displaces(word(AlignmentCheck), 0x31)
        );
        // An interrupt of a vector that exceptions have, too.
        assert_eq!(met(interrupt(8), Debug), Met::Displaces(word(Debug), 8));
        assert_eq!(met(nmi(), Debug), Met::DisplacesNmi(word(Debug)));
        let real = meet(Some(exception(GeneralProtection, false)), GeneralProtection, false);
        assert_eq!(real, Met::Takes(0x8000_0308));
    }

    #[test]
    fn what_an_instruction_asks_for_is_left_to_the_instruction() {
        assert_eq!(again(0x8000_0480), None);
        assert_eq!(again(0x8000_0303), None);
        assert_eq!(again(0x0000_0031), None);
        let fault = exception(Exception::GeneralProtection, true);
        for word in [interrupt(0x31), nmi(), fault, 0xe_8000_0b0e] {
            assert_eq!(again(word), Some(word));
        }
    }
}
