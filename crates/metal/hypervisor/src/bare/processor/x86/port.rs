//! The machine's serial port: the first UART of a PC, a 16550, written a byte at a time, with an interrupt for what is typed. A
//! UART that is not there takes all, and gives nothing.

use mayfly_hypervisor::line;
use x86_64::instructions::port::Port;

use super::lines;

/// Its line of the IOAPIC, which is one by edges.
pub(crate) const LINE: u32 = 4;

const BASE: u16 = 0x3f8;
const DATA: u16 = 0;
const INTERRUPTS: u16 = 1;
const FIFO: u16 = 2;
const MODEM: u16 = 4;
const LINE_STATUS: u16 = 5;
const IS_READY: u8 = 1 << 0;
const IS_EMPTY: u8 = 1 << 5;
/// An interrupt for what is received; what is received waits in a FIFO; the line is led out.
const RECEIVED: u8 = 1 << 0;
const FIFO_ON: u8 = 1 << 0;
const LED_OUT: u8 = 1 << 3 | 1 << 1 | 1 << 0;

fn read(register: u16) -> u8 {
    // SAFETY: a register of the UART, which changes no memory.
    unsafe { Port::<u8>::new(BASE + register).read() }
}

fn write(register: u16, value: u8) {
    // SAFETY: as above.
    unsafe { Port::<u8>::new(BASE + register).write(value) }
}

/// Turns the interrupt for received bytes on.
pub(crate) fn listen() {
    write(FIFO, FIFO_ON);
    write(MODEM, LED_OUT);
    lines::enable(LINE, true);
    write(INTERRUPTS, RECEIVED);
}

/// The port, to be written to.
pub(crate) struct SerialPort;

impl line::Port for SerialPort {
    fn take(&mut self, byte: u8) -> bool {
        let is_empty = read(LINE_STATUS) & IS_EMPTY != 0;
        if is_empty {
            write(DATA, byte);
        }
        is_empty
    }
}

/// The next byte that was received, if there is one.
pub(crate) fn received() -> Option<u8> {
    let status = read(LINE_STATUS);
    (status != u8::MAX && status & IS_READY != 0).then(|| read(DATA))
}
