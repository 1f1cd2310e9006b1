//! How text goes out by a serial port that may be slow, while interrupts are masked and looked for now and then.
//!
//! A byte takes 87 us at 115,200 baud. A port takes 16 or 32 bytes at once; then it has room for another byte only when it
//! has sent one. So a line of 100 bytes takes up to 8.7 ms. Interrupts are looked for each time that the port has no
//! room, and after at most [`PIECE`] bytes where it always has.

use core::fmt::{self, Write};

/// The most bytes that are sent between two looks for interrupts.
pub const PIECE: usize = 64;

/// A serial port.
pub trait Port {
    /// Takes a byte, if it has room for one. Returns whether it has taken it.
    fn take(&mut self, byte: u8) -> bool;
}

/// Sends `bytes`. Calls `look` each time that the port has no room, and between pieces of [`PIECE`] bytes.
pub fn send(port: &mut impl Port, bytes: &[u8], mut look: impl FnMut()) {
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        if number > 0 {
            look();
        }
        for &byte in piece {
            while !port.take(byte) {
                look();
            }
        }
    }
}

/// Sends `text` and the end of a line, each LF as CR and LF. It is formatted into pieces of [`PIECE`] bytes, and `look` is
/// called between them, too.
pub fn print(port: &mut impl Port, text: fmt::Arguments<'_>, look: impl FnMut()) {
    let mut line = Line { port, look, bytes: [0; PIECE], count: 0 };
    // It does not fail but by what is formatted, of which this is all then.
    let _ = line.write_fmt(text);
    line.put(b'\r');
    line.put(b'\n');
    line.flush();
}

/// A line that is being formatted.
struct Line<'a, P, L> {
    port: &'a mut P,
    look: L,
    /// What is not sent yet; the first `count`.
    bytes: [u8; PIECE],
    count: usize,
}

impl<P: Port, L: FnMut()> Line<'_, P, L> {
    fn put(&mut self, byte: u8) {
        if self.count == PIECE {
            self.flush();
            (self.look)();
        }
        self.bytes[self.count] = byte;
        self.count += 1;
    }

    fn flush(&mut self) {
        send(self.port, &self.bytes[..self.count], &mut self.look);
        self.count = 0;
    }
}

impl<P: Port, L: FnMut()> Write for Line<'_, P, L> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                self.put(b'\r');
            }
            self.put(byte);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;
    use std::string::String;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// A port whose memory has `room` bytes, of which one is sent in `pace` looks; and what was done between two looks.
    struct Slow {
        room: usize,
        pace: usize,
        waiting: usize,
        looks: usize,
        sent: Vec<u8>,
        taken: usize,
        refused: usize,
    }

    impl Slow {
        fn new(room: usize, pace: usize) -> RefCell<Self> {
            let (waiting, looks, taken, refused) = (0, 0, 0, 0);
            RefCell::new(Self { room, pace, waiting, looks, sent: Vec::new(), taken, refused })
        }

        fn look(&mut self) {
            assert!(self.taken > 0 || self.refused > 0, "looked for interrupts twice");
            (self.taken, self.refused) = (0, 0);
            self.looks += 1;
            if self.looks.is_multiple_of(self.pace) {
                self.waiting = self.waiting.saturating_sub(1);
            }
        }
    }

    impl Port for &RefCell<Slow> {
        fn take(&mut self, byte: u8) -> bool {
            let it = &mut *self.borrow_mut();
            assert_eq!(it.refused, 0, "waited for the port without a look");
            if it.waiting == it.room {
                it.refused += 1;
                return false;
            }
            it.waiting += 1;
            it.taken += 1;
            assert!(it.taken <= PIECE, "{} bytes without a look", it.taken);
            it.sent.push(byte);
            true
        }
    }

    /// A port that always has room.
    const FAST: usize = usize::MAX;

    proptest! {
        #[test]
        fn a_line_goes_out_whole_and_interrupts_are_looked_for_at_every_wait_and_after_each_piece(
            parts in prop::collection::vec("[a-c\n]{0,90}", 0..6),
            room in prop_oneof![Just(FAST), Just(1_usize), Just(16), Just(32), 1..100_usize],
            pace in 1_usize..5,
        ) {
            let port = Slow::new(room, pace);
            let all: String = parts.concat();
            let [a, b, c] = [0, 1, 2].map(|part| parts.get(part).cloned().unwrap_or_default());
            let rest = parts.iter().skip(3).cloned().collect::<String>();
            print(&mut &port, format_args!("{a}{b}{c}{rest}"), || port.borrow_mut().look());
            let expected = (all + "\n").replace('\n', "\r\n");
            prop_assert_eq!(&port.borrow().sent, expected.as_bytes());
            // What must be looked for is what the port insists on. Where it has room, there is no more.
            if room == FAST {
                prop_assert_eq!(port.borrow().looks, (expected.len() - 1) / PIECE);
            }
        }

        #[test]
        fn bytes_go_out_as_they_are(bytes in prop::collection::vec(any::<u8>(), 0..300), room in 1_usize..40) {
            let port = Slow::new(room, 1);
            send(&mut &port, &bytes, || port.borrow_mut().look());
            prop_assert_eq!(&port.borrow().sent, &bytes);
        }
    }

    #[test]
    fn a_line_of_100_bytes_on_a_real_port_looks_for_interrupts_at_each_byte_that_it_waits_for() {
        let port = Slow::new(16, 1);
        print(&mut &port, format_args!("{:98}", "mayfly:"), || port.borrow_mut().look());
        assert_eq!((port.borrow().sent.len(), port.borrow().looks), (100, 84));
    }
}
