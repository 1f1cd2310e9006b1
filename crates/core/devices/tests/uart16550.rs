//! The 16550A of a PC, beside a naive model: lists, and each register by what the data sheet says of it alone.

use std::collections::VecDeque;

use mayfly_devices::uart16550::Uart16550;
use proptest::prelude::*;

#[derive(Default)]
struct Naive {
    received: VecDeque<u8>,
    overrun: bool,
    empty_is_news: bool,
    ier: u8,
    fcr: u8,
    lcr: u8,
    mcr: u8,
    scr: u8,
    dll: u8,
    dlm: u8,
    deltas: u8,
}

impl Naive {
    fn room(&self) -> usize {
        if self.fcr & 1 == 0 { 1 } else { 16 }
    }

    fn lines(&self) -> u8 {
        if self.mcr & 0x10 == 0 {
            return 0xb0;
        }
        (0..4).filter(|bit| self.mcr >> bit & 1 == 1).map(|bit| [0x20, 0x10, 0x40, 0x80][bit]).sum()
    }

    /// Each cause that is raised, the most urgent first.
    fn causes(&self) -> Vec<u8> {
        let trigger = if self.fcr & 1 == 0 { 1 } else { [1, 4, 8, 14][usize::from(self.fcr >> 6)] };
        let mut causes = Vec::new();
        for (is_raised, enable, id) in [
            (self.overrun, 4, 0x6),
            (self.received.len() >= trigger, 1, 0x4),
            (self.fcr & 1 == 1 && !self.received.is_empty(), 1, 0xc),
            (self.empty_is_news, 2, 0x2),
            (self.deltas != 0, 8, 0x0),
        ] {
            if is_raised && self.ier & enable != 0 {
                causes.push(id);
            }
        }
        causes
    }

    fn interrupt(&self) -> bool {
        !self.causes().is_empty() && self.mcr & 8 != 0
    }

    fn arrives(&mut self, byte: u8) {
        if self.received.len() < self.room() {
            self.received.push_back(byte);
            return;
        }
        self.overrun = true;
        if self.fcr & 1 == 0 {
            self.received[0] = byte;
        }
    }

    fn read(&mut self, port: u64) -> u8 {
        match (port, self.lcr >> 7) {
            (0, 1) => self.dll,
            (1, 1) => self.dlm,
            (0, _) => self.received.pop_front().unwrap_or(0),
            (1, _) => self.ier,
            (2, _) => {
                let cause = self.causes().first().copied();
                if cause == Some(2) {
                    self.empty_is_news = false;
                }
                cause.unwrap_or(1) | if self.fcr & 1 == 1 { 0xc0 } else { 0 }
            }
            (3, _) => self.lcr,
            (4, _) => self.mcr,
            (5, _) => {
                let status =
                    0x60 | u8::from(!self.received.is_empty()) | u8::from(self.overrun) << 1;
                self.overrun = false;
                status
            }
            (6, _) => self.lines() | std::mem::take(&mut self.deltas),
            _ => self.scr,
        }
    }

    fn write(&mut self, port: u64, value: u8) -> Option<u8> {
        match (port, self.lcr >> 7) {
            (0, 1) => self.dll = value,
            (1, 1) => self.dlm = value,
            (0, _) => {
                self.empty_is_news = true;
                if self.mcr & 0x10 == 0 {
                    return Some(value);
                }
                self.arrives(value);
            }
            (1, _) => {
                self.empty_is_news |= self.ier & 2 == 0 && value & 2 != 0;
                self.ier = value & 0xf;
            }
            (2, _) => {
                if (self.fcr ^ value) & 1 == 1 || value & 2 != 0 {
                    self.received.clear();
                }
                self.fcr = if value & 1 == 1 { value } else { 0 };
            }
            (3, _) => self.lcr = value,
            (4, _) => {
                let before = self.lines();
                self.mcr = value & 0x1f;
                let now = self.lines();
                // That of the ring tells its end alone.
                self.deltas |= ((before ^ now) & 0xb0 | before & !now & 0x40) >> 4;
            }
            (7, _) => self.scr = value,
            _ => {}
        }
        None
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64),
    Write(u64, u8),
    Type(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u64..8).prop_map(Step::Read),
        (0_u64..8, any::<u8>()).prop_map(|(port, value)| Step::Write(port, value)),
        // What drivers write, so that their states are reached.
        prop::sample::select(vec![
            (2, 1),
            (2, 0xc7),
            (3, 3),
            (4, 0x0b),
            (4, 0x1b),
            (1, 5),
            (1, 7),
            (0, 65)
        ])
        .prop_map(|(port, value)| Step::Write(port, value)),
        prop::collection::vec(any::<u8>(), 1..20).prop_map(Step::Type),
    ]
}

proptest! {
    #[test]
    fn it_does_what_the_data_sheet_says(steps in prop::collection::vec(step(), 1..200)) {
        let mut uart = Uart16550::new();
        let mut naive = Naive { dll: 12, ..Naive::default() };
        for step in steps {
            match &step {
                Step::Read(port) => prop_assert_eq!(uart.read(*port), naive.read(*port), "{:?}", &step),
                Step::Write(port, value) => prop_assert_eq!(uart.write(*port, *value), naive.write(*port, *value), "{:?}", &step),
                Step::Type(bytes) => {
                    let room = if naive.mcr & 0x10 == 0 { naive.room().saturating_sub(naive.received.len()) } else { 0 };
                    let taken = uart.receive(bytes);
                    prop_assert_eq!(taken, room.min(bytes.len()));
                    bytes[..taken].iter().for_each(|&byte| naive.arrives(byte));
                }
            }
            prop_assert_eq!(uart.interrupt(), naive.interrupt(), "{:?}", &step);
        }
    }
}

/// The steps by which Linux finds out that there is a UART, and which (`autoconfig` in `drivers/tty/serial/8250/8250_port.c`).
#[test]
fn linux_finds_a_16550a() {
    let mut uart = Uart16550::new();
    uart.write(1, 0);
    assert_eq!(uart.read(1) & 0xf, 0);
    uart.write(1, 0xf);
    assert_eq!(uart.read(1) & 0xf, 0xf);
    uart.write(1, 0);
    // Looped back, the modem's lines are what is driven.
    uart.write(4, 0x1a);
    assert_eq!(uart.read(6) & 0xf0, 0x90);
    uart.write(4, 0);
    uart.write(2, 1);
    assert_eq!(uart.read(2) >> 6, 3);
}

/// Whoever types faster than the guest reads loses nothing: what is not taken is said.
#[test]
fn what_is_not_taken_is_said() {
    let mut uart = Uart16550::new();
    assert_eq!(uart.receive(b"ab"), 1);
    uart.write(2, 1);
    assert_eq!(uart.receive(&[7; 20]), 16);
    assert_eq!(uart.receive(b"c"), 0);
    assert_eq!((uart.read(0), uart.receive(b"c")), (7, 1));
    assert_eq!(uart.read(5) & 2, 0, "nothing was lost");
}
