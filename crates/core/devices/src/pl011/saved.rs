//! A UART, as it is saved.

use mayfly_state::{Error, Kind, SectionReader, SectionWriter};

use super::register::{control, error, interrupt, kept};
use super::{DEPTH, Pl011};
use crate::fifo::Fifo;

/// The section that [`Pl011::save`] writes.
pub const STATE: Kind = Kind::new("pl011", 1);

/// What an entry of the FIFO has: a byte, and what came with it.
const ENTRY: u16 = 0xff | error::BREAK | error::OVERRUN;
/// Errors of the byte that was read last, and overrun.
const STATUS: u32 = 0xf;
/// The interrupts that are ever raised.
const RAISED: u32 = interrupt::RECEIVE
    | interrupt::TRANSMIT
    | interrupt::TIME_OUT
    | interrupt::BREAK
    | interrupt::OVERRUN;
const _: () = assert!(RAISED & !interrupt::ALL == 0 && control::ENABLE & !kept::CONTROL == 0);

impl Pl011 {
    /// Writes what it is into a section of kind [`STATE`].
    pub fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.flag(self.overrun);
        for register in [
            self.status,
            self.irda_low_power,
            self.integer_baud,
            self.fractional_baud,
            self.line_control,
            self.control,
            self.fifo_levels,
            self.mask,
            self.raw,
            self.dma_control,
        ] {
            to.u32(register);
        }
        to.u32(self.received.len() as u32);
        for entry in self.received.iter() {
            to.u16(entry);
        }
    }

    /// One that goes on as the saved one would have.
    ///
    /// # Errors
    ///
    /// [`Error`] names a field that no UART could have come to.
    pub fn load(mut from: SectionReader<'_>) -> Result<Self, Error> {
        let mut uart = Self {
            received: Fifo::new(0),
            overrun: from.flag("overrun")?,
            status: from.bits("UARTRSR", STATUS)?,
            irda_low_power: from.bits("UARTILPR", kept::IRDA_LOW_POWER)?,
            integer_baud: from.bits("UARTIBRD", kept::INTEGER_BAUD)?,
            fractional_baud: from.bits("UARTFBRD", kept::FRACTIONAL_BAUD)?,
            line_control: from.bits("UARTLCR_H", kept::LINE_CONTROL)?,
            control: from.bits("UARTCR", kept::CONTROL)?,
            fifo_levels: from.bits("UARTIFLS", kept::FIFO_LEVELS)?,
            mask: from.bits("UARTIMSC", interrupt::ALL)?,
            raw: from.bits("UARTRIS", RAISED)?,
            dma_control: from.bits("UARTDMACR", kept::DMA_CONTROL)?,
        };
        let entries = from.count("received entries", uart.depth().min(DEPTH))?;
        for index in 0..entries {
            from.of(index as u32);
            let entry = from.u16("received entry")?;
            from.check("received entry", entry.into(), entry & !ENTRY == 0)?;
            uart.received.push(entry, DEPTH);
        }
        from.end()?;
        Ok(uart)
    }
}
