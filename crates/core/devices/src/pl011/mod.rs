//! The PL011 UART as its driver sees it: Arm DDI 0183G, revision r1p5.
//!
//! Transmitted bytes leave at once: the transmit FIFO is always empty, and the transmit interrupt is raised as soon as
//! a byte has gone. Received bytes wait in the FIFO of 32 entries. The baud rate, and what else belongs to the wire, is
//! kept and has no effect. There is no DMA, and no modem: the modem's lines are always asserted.
//!
//! The *receive time-out* stands for "32 bit times without a byte". Here no time passes, so it is raised as soon as
//! there is something below the trigger level.

mod register;
mod saved;

use crate::fifo::Fifo;
use register::{FIFO_ENABLE, IDENTIFICATION, Register, control, error, flag, interrupt, kept};
pub use saved::STATE;

/// How many entries its FIFO has in r1p5, where it is enabled.
const DEPTH: usize = 32;

/// The bytes of its register page.
pub const SIZE: u64 = 0x1000;

/// A PL011. It drives one line, of which [`Pl011::interrupt`] is the level: see [`settle`](crate::line::settle).
///
/// ```
/// use mayfly_devices::pl011::Pl011;
///
/// let mut uart = Pl011::new();
/// assert_eq!(uart.write(0x00, u32::from(b'x')), Some(b'x'));
///
/// uart.write(0x2c, 0x70); // LCR_H: 8 bits, FIFOs on
/// assert_eq!(uart.receive(b"ls"), 2);
/// uart.write(0x38, 0x50); // IMSC: received, and time-out
/// assert!(uart.interrupt());
/// assert_eq!(uart.read(0x00), u32::from(b'l'));
/// ```
#[derive(Clone, Debug)]
pub struct Pl011 {
    /// Bytes, with the errors that they came with.
    received: Fifo<u16, DEPTH>,
    /// An entry that was lost is told with the next one.
    overrun: bool,
    /// Errors of the byte that was read last, and overrun, until cleared.
    status: u32,
    irda_low_power: u32,
    integer_baud: u32,
    fractional_baud: u32,
    line_control: u32,
    control: u32,
    fifo_levels: u32,
    mask: u32,
    raw: u32,
    dma_control: u32,
}

impl Default for Pl011 {
    fn default() -> Self {
        Self::new()
    }
}

impl Pl011 {
    /// One as firmware leaves it: reset (section 3.2), and turned on, for an early console that writes to it at once.
    pub const fn new() -> Self {
        Self {
            received: Fifo::new(0),
            overrun: false,
            status: 0,
            irda_low_power: 0,
            integer_baud: 0,
            fractional_baud: 0,
            line_control: 0,
            control: control::ENABLE | control::TRANSMIT | control::RECEIVE,
            fifo_levels: 0x12,
            mask: 0,
            raw: 0,
            dma_control: 0,
        }
    }

    /// The level of its interrupt line, UARTINTR: high while an unmasked interrupt is asserted.
    pub const fn interrupt(&self) -> bool {
        self.raw & self.mask != 0
    }

    /// Reads the register at `offset` into its page. What is reserved reads as zero. Of a byte or halfword at the
    /// offset of a register, the low bits are the answer.
    pub fn read(&mut self, offset: u64) -> u32 {
        let value = self.peek(offset);
        if offset == Register::Data as u64 && self.received.pop().is_some() {
            self.status = self.status & 0x8 | value >> 8 & 0xf;
            if self.received.len() < self.trigger() {
                self.raw &= !interrupt::RECEIVE;
            }
            if self.received.len() == 0 {
                self.raw &= !interrupt::TIME_OUT;
            }
        }
        value
    }

    /// What [`Pl011::read`] would say now, with nothing changed by it.
    pub fn peek(&self, offset: u64) -> u32 {
        let Some(register) = Register::at(offset) else {
            return match offset {
                0xfe0..=0xffc if offset.is_multiple_of(4) => {
                    IDENTIFICATION[((offset - 0xfe0) / 4) as usize].into()
                }
                _ => 0,
            };
        };
        match register {
            Register::Data => self.received.peek().unwrap_or(0).into(),
            Register::Status => self.status,
            Register::Flag => self.flags(),
            Register::IrdaLowPower => self.irda_low_power,
            Register::IntegerBaud => self.integer_baud,
            Register::FractionalBaud => self.fractional_baud,
            Register::LineControl => self.line_control,
            Register::Control => self.control,
            Register::FifoLevels => self.fifo_levels,
            Register::Mask => self.mask,
            Register::Raw => self.raw,
            Register::Masked => self.raw & self.mask,
            Register::Clear => 0,
            Register::DmaControl => self.dma_control,
        }
    }

    /// Whether a read changes nothing, at any offset: true while nothing is in the receive FIFO. The guest may then read
    /// a page with what [`Pl011::peek`] says, until the next write to this device or the next byte received.
    pub const fn reads_change_nothing(&self) -> bool {
        self.received.len() == 0
    }

    /// Writes the register at `offset` into its page; the byte that is transmitted by it, if one is. What is reserved,
    /// or only read, ignores it.
    pub fn write(&mut self, offset: u64, value: u32) -> Option<u8> {
        match Register::at(offset)? {
            Register::Data => return self.transmit(value as u8),
            Register::Status => self.status = 0,
            Register::IrdaLowPower => self.irda_low_power = value & kept::IRDA_LOW_POWER,
            Register::IntegerBaud => self.integer_baud = value & kept::INTEGER_BAUD,
            Register::FractionalBaud => self.fractional_baud = value & kept::FRACTIONAL_BAUD,
            Register::LineControl => {
                // Turning the FIFOs on or off flushes them.
                if (self.line_control ^ value) & FIFO_ENABLE != 0 {
                    self.received.clear();
                    self.raw &= !(interrupt::RECEIVE | interrupt::TIME_OUT);
                }
                self.line_control = value & kept::LINE_CONTROL;
            }
            Register::Control => self.control = value & kept::CONTROL,
            Register::FifoLevels => self.fifo_levels = value & kept::FIFO_LEVELS,
            Register::Mask => self.mask = value & interrupt::ALL,
            Register::Clear => self.raw &= !value,
            Register::DmaControl => self.dma_control = value & kept::DMA_CONTROL,
            Register::Flag | Register::Raw | Register::Masked => {}
        }
        None
    }

    /// Gives bytes to the guest; says how many were taken. The others are for later: when the guest has read some, or
    /// turns its receiver on.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        if !self.receives() {
            return 0;
        }
        let room = self.depth().saturating_sub(self.received.len());
        let taken = bytes.len().min(room);
        for &byte in &bytes[..taken] {
            self.push(byte.into());
        }
        taken
    }

    /// Gives a break to the guest (a terminal's way to ask Linux for its `SysRq`); says whether it was taken.
    pub fn receive_break(&mut self) -> bool {
        let taken = self.receives() && self.received.len() < self.depth();
        if taken {
            self.push(error::BREAK);
            self.raw |= interrupt::BREAK;
        }
        taken
    }

    fn transmit(&mut self, byte: u8) -> Option<u8> {
        if self.control & control::ENABLE == 0 || self.control & control::TRANSMIT == 0 {
            return None;
        }
        self.raw |= interrupt::TRANSMIT;
        if self.control & control::LOOP_BACK == 0 {
            return Some(byte);
        }
        if self.receives() {
            self.push(byte.into());
        }
        None
    }

    fn push(&mut self, entry: u16) {
        let lost = if self.overrun { error::OVERRUN } else { 0 };
        if self.received.push(entry | lost, self.depth()) {
            self.overrun = false;
        } else {
            self.overrun = true;
            self.status |= u32::from(error::OVERRUN >> 8);
            self.raw |= interrupt::OVERRUN;
        }
        self.raw |= interrupt::TIME_OUT;
        if self.received.len() >= self.trigger() {
            self.raw |= interrupt::RECEIVE;
        }
    }

    fn flags(&self) -> u32 {
        let mut flags = flag::MODEM | flag::TRANSMIT_EMPTY;
        if self.received.len() == 0 {
            flags |= flag::RECEIVE_EMPTY;
        }
        if self.received.len() >= self.depth() {
            flags |= flag::RECEIVE_FULL;
        }
        flags
    }

    const fn receives(&self) -> bool {
        let wanted = control::ENABLE | control::RECEIVE;
        self.control & wanted == wanted
    }

    const fn depth(&self) -> usize {
        if self.line_control & FIFO_ENABLE == 0 { 1 } else { DEPTH }
    }

    /// From how many entries on the receive interrupt is asserted (IFLS: 1/8, 1/4, 1/2, 3/4, 7/8 of the FIFO; what is
    /// reserved counts as the last).
    const fn trigger(&self) -> usize {
        if self.line_control & FIFO_ENABLE == 0 {
            return 1;
        }
        match self.fifo_levels >> 3 & 7 {
            0 => DEPTH / 8,
            1 => DEPTH / 4,
            2 => DEPTH / 2,
            3 => DEPTH * 3 / 4,
            _ => DEPTH * 7 / 8,
        }
    }
}
