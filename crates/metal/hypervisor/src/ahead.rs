//! What is typed at the monitor while it works. It is kept, and is done afterwards. Ctrl-C asks the monitor to wait no longer,
//! and drops what was typed before.

/// The most bytes that are kept.
pub const MOST: usize = 256;

/// Ctrl-C.
pub const INTERRUPT: u8 = 0x03;

/// Bytes that were typed while the monitor worked, in their order. It takes no memory for them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ahead {
    bytes: [u8; MOST],
    first: usize,
    count: usize,
    overflows: bool,
    is_interrupted: bool,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { bytes: [0; MOST], first: 0, count: 0, overflows: false, is_interrupted: false }
    }
}

impl Ahead {
    /// Takes a byte that was typed. Returns whether it is lost for want of room, and is the first since something was read.
    pub const fn push(&mut self, byte: u8) -> bool {
        if byte == INTERRUPT {
            (self.count, self.overflows, self.is_interrupted) = (0, false, true);
            return false;
        }
        if self.count == MOST {
            return !core::mem::replace(&mut self.overflows, true);
        }
        self.bytes[(self.first + self.count) % MOST] = byte;
        self.count += 1;
        false
    }

    /// The next byte.
    pub fn take(&mut self) -> Option<u8> {
        self.count = self.count.checked_sub(1)?;
        let byte = self.bytes[self.first];
        self.first = (self.first + 1) % MOST;
        self.overflows = false;
        Some(byte)
    }

    /// Whether Ctrl-C was typed.
    #[must_use]
    pub const fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// The same, and forgets it.
    pub const fn take_interrupt(&mut self) -> bool {
        core::mem::replace(&mut self.is_interrupted, false)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn rest(ahead: &mut Ahead) -> Vec<u8> {
        core::iter::from_fn(|| ahead.take()).collect()
    }

    #[test]
    fn what_is_typed_is_kept_in_its_order() {
        let mut ahead = Ahead::default();
        for round in 0..3 {
            let typed: Vec<u8> = (0..200).map(|number| number + 4 + round).collect();
            assert!(!typed.iter().any(|&byte| ahead.push(byte)));
            assert_eq!(rest(&mut ahead), typed);
        }
        assert!(!ahead.is_interrupted());
    }

    #[test]
    fn what_finds_no_room_is_lost_which_is_said_once() {
        let mut ahead = Ahead::default();
        assert!(!(0..MOST).any(|_| ahead.push(b'a')));
        assert_eq!([b'b'; 3].map(|byte| ahead.push(byte)), [true, false, false]);
        assert_eq!(ahead.take(), Some(b'a'));
        assert_eq!([b'c'; 3].map(|byte| ahead.push(byte)), [false, true, false]);
        let kept = rest(&mut ahead);
        assert_eq!((kept.len(), kept.last()), (MOST, Some(&b'c')));
    }

    #[test]
    fn ctrl_c_interrupts_once_and_drops_what_was_typed_before() {
        let mut ahead = Ahead::default();
        for _ in 0..=MOST {
            ahead.push(b'a');
        }
        assert!(!ahead.push(INTERRUPT) && !ahead.push(b'b'));
        assert!(ahead.is_interrupted() && ahead.take_interrupt() && !ahead.take_interrupt());
        assert_eq!(rest(&mut ahead), b"b");
    }
}
