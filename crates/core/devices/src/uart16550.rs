//! The 16550A UART of a PC as its driver sees it: National Semiconductor, PC16550D data sheet (SNLS378).
//!
//! Transmitted bytes leave at once: the transmitter is always empty, and its interrupt is raised as soon as a byte has gone.
//! Received bytes wait in the FIFO of 16, or in one register where FIFOs are off. The baud rate is kept and has no effect.
//! The modem's lines are always asserted; in loop-back they are what the driver drives.
//!
//! As on a PC, the interrupt reaches its line only while `OUT2` is driven. The *time-out* of received bytes stands for "a
//! while without a byte". Here no time passes, so it is raised as soon as there is something below the trigger level.

mod register;

use crate::fifo::Fifo;
use register::{fifo, identification, interrupt, line, line_status, modem, modem_status};

/// How many ports it has.
pub const PORTS: u64 = 8;
/// How many bytes its FIFO has.
pub const DEPTH: usize = 16;

/// A 16550A. It drives one line, of which [`Uart16550::interrupt`] is the level: see [`settle`](crate::line::settle).
///
/// ```
/// use mayfly_devices::uart16550::Uart16550;
///
/// let mut uart = Uart16550::new();
/// assert_eq!(uart.write(0, b'x'), Some(b'x'));
///
/// uart.write(2, 1); // FCR: FIFOs on
/// assert_eq!(uart.receive(b"ls"), 2);
/// uart.write(4, 8); // MCR: OUT2
/// uart.write(1, 1); // IER: received
/// assert!(uart.interrupt());
/// assert_eq!(uart.read(0), b'l');
/// ```
#[derive(Clone, Debug, Default)]
pub struct Uart16550 {
    received: Fifo<u8, DEPTH>,
    /// A byte was lost, until the line's status is read.
    overrun: bool,
    /// The transmitter has become empty, and nobody has looked.
    sent: bool,
    enabled: u8,
    has_fifos: bool,
    trigger: u8,
    line: u8,
    modem: u8,
    scratch: u8,
    divisor: u16,
    /// Bits 3 to 0 of the modem's status: what has changed since it was read.
    changed: u8,
}

impl Uart16550 {
    /// One after reset, at 9,600 bits a second.
    pub fn new() -> Self {
        Self { divisor: 12, ..Self::default() }
    }

    /// The level of its interrupt line.
    pub fn interrupt(&self) -> bool {
        self.cause() != identification::NONE && self.modem & modem::OUT2 != 0
    }

    /// Reads the port at `offset`, of which the lowest three bits count.
    pub fn read(&mut self, offset: u64) -> u8 {
        let is_divisor = self.line & line::DIVISOR != 0;
        match offset & 7 {
            0 if is_divisor => self.divisor as u8,
            0 => self.received.pop().unwrap_or(0),
            1 if is_divisor => (self.divisor >> 8) as u8,
            1 => self.enabled,
            2 => {
                let cause = self.cause();
                if cause == identification::SENT {
                    self.sent = false;
                }
                cause | if self.has_fifos { identification::FIFOS } else { 0 }
            }
            3 => self.line,
            4 => self.modem,
            5 => {
                let status = self.line_status();
                self.overrun = false;
                status
            }
            6 => {
                let changed = core::mem::take(&mut self.changed);
                self.modem_status() | changed
            }
            _ => self.scratch,
        }
    }

    /// Writes the port at `offset`, of which the lowest three bits count; the byte that is transmitted by it, if one is.
    pub fn write(&mut self, offset: u64, value: u8) -> Option<u8> {
        let is_divisor = self.line & line::DIVISOR != 0;
        match offset & 7 {
            0 if is_divisor => self.divisor = self.divisor & 0xff00 | u16::from(value),
            0 => return self.transmit(value),
            1 if is_divisor => self.divisor = self.divisor & 0xff | u16::from(value) << 8,
            1 => {
                // Enabled while the transmitter is empty, its interrupt is raised.
                if value & !self.enabled & interrupt::SENT != 0 {
                    self.sent = true;
                }
                self.enabled = value & interrupt::ALL;
            }
            2 => self.control_fifos(value),
            3 => self.line = value,
            4 => {
                let before = self.modem_status();
                self.modem = value & modem::ALL;
                self.changed |= modem_status::changes(before, self.modem_status());
            }
            5 | 6 => {}
            _ => self.scratch = value,
        }
        None
    }

    /// Gives bytes to the guest; says how many were taken. The others are for later, when the guest has read some.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        if self.modem & modem::LOOP_BACK != 0 {
            return 0;
        }
        let taken = bytes.len().min(self.depth().saturating_sub(self.received.len()));
        for &byte in &bytes[..taken] {
            self.push(byte);
        }
        taken
    }

    fn transmit(&mut self, byte: u8) -> Option<u8> {
        self.sent = true;
        if self.modem & modem::LOOP_BACK == 0 {
            return Some(byte);
        }
        self.push(byte);
        None
    }

    fn push(&mut self, byte: u8) {
        if self.received.push(byte, self.depth()) {
            return;
        }
        self.overrun = true;
        // Without FIFOs, the byte that is there is overwritten.
        if !self.has_fifos {
            self.received.clear();
            self.received.push(byte, 1);
        }
    }

    fn control_fifos(&mut self, value: u8) {
        let has_fifos = value & fifo::ENABLE != 0;
        if has_fifos != self.has_fifos || value & fifo::CLEAR_RECEIVED != 0 {
            self.received.clear();
        }
        self.has_fifos = has_fifos;
        // The other bits count only with this one.
        self.trigger = if has_fifos { value >> 6 } else { 0 };
    }

    const fn depth(&self) -> usize {
        if self.has_fifos { DEPTH } else { 1 }
    }

    /// From how many bytes on the interrupt of received bytes is raised.
    const fn level(&self) -> usize {
        match self.trigger {
            0 => 1,
            1 => 4,
            2 => 8,
            _ => 14,
        }
    }

    /// The interrupt of the highest priority.
    fn cause(&self) -> u8 {
        let is_enabled = |bit: u8| self.enabled & bit != 0;
        if is_enabled(interrupt::LINE) && self.overrun {
            identification::LINE
        } else if is_enabled(interrupt::RECEIVED) && self.received.len() >= self.level() {
            identification::RECEIVED
        } else if is_enabled(interrupt::RECEIVED) && self.has_fifos && self.received.len() > 0 {
            identification::TIME_OUT
        } else if is_enabled(interrupt::SENT) && self.sent {
            identification::SENT
        } else if is_enabled(interrupt::MODEM) && self.changed != 0 {
            identification::MODEM
        } else {
            identification::NONE
        }
    }

    const fn line_status(&self) -> u8 {
        line_status::EMPTY
            | if self.received.len() > 0 { line_status::READY } else { 0 }
            | if self.overrun { line_status::OVERRUN } else { 0 }
    }

    /// Bits 7 to 4.
    fn modem_status(&self) -> u8 {
        if self.modem & modem::LOOP_BACK == 0 {
            return modem_status::CONNECTED;
        }
        let bit = |from: u8, to: u8| if self.modem & from != 0 { to } else { 0 };
        bit(modem::RTS, modem_status::CTS)
            | bit(modem::DTR, modem_status::DSR)
            | bit(modem::OUT1, modem_status::RI)
            | bit(modem::OUT2, modem_status::DCD)
    }
}
