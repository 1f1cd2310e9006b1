//! The register map: Arm DDI 0183G (PL011, r1p5), section 3.2.

/// A register of the PL011, by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Register {
    Data = 0x000,
    /// Receive status, and error clear.
    Status = 0x004,
    Flag = 0x018,
    IrdaLowPower = 0x020,
    IntegerBaud = 0x024,
    FractionalBaud = 0x028,
    LineControl = 0x02c,
    Control = 0x030,
    FifoLevels = 0x034,
    Mask = 0x038,
    Raw = 0x03c,
    Masked = 0x040,
    Clear = 0x044,
    DmaControl = 0x048,
}

impl Register {
    /// The register at `offset`, which is that of its first byte.
    pub(super) const fn at(offset: u64) -> Option<Self> {
        Some(match offset {
            0x000 => Self::Data,
            0x004 => Self::Status,
            0x018 => Self::Flag,
            0x020 => Self::IrdaLowPower,
            0x024 => Self::IntegerBaud,
            0x028 => Self::FractionalBaud,
            0x02c => Self::LineControl,
            0x030 => Self::Control,
            0x034 => Self::FifoLevels,
            0x038 => Self::Mask,
            0x03c => Self::Raw,
            0x040 => Self::Masked,
            0x044 => Self::Clear,
            0x048 => Self::DmaControl,
            _ => return None,
        })
    }
}

/// The identification registers from 0xfe0 on: part 0x011, designer Arm (0x41), revision 3 (r1p5: a FIFO has 32
/// entries), and the identification of a `PrimeCell`. Sections 3.3.15 to 3.3.22.
pub(super) const IDENTIFICATION: [u8; 8] = [0x11, 0x10, 0x34, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

/// Bits of the flag register.
pub(super) mod flag {
    /// The modem's lines, asserted: clear to send, data set ready, carrier.
    pub(crate) const MODEM: u32 = 0x07;
    pub(crate) const RECEIVE_EMPTY: u32 = 1 << 4;
    pub(crate) const RECEIVE_FULL: u32 = 1 << 6;
    pub(crate) const TRANSMIT_EMPTY: u32 = 1 << 7;
}

/// Bits of the control register.
pub(super) mod control {
    pub(crate) const ENABLE: u32 = 1 << 0;
    pub(crate) const LOOP_BACK: u32 = 1 << 7;
    pub(crate) const TRANSMIT: u32 = 1 << 8;
    pub(crate) const RECEIVE: u32 = 1 << 9;
}

/// The bit of the line control register that turns the FIFOs on.
pub(super) const FIFO_ENABLE: u32 = 1 << 4;

/// The bits of each register that are kept as they are written.
pub(super) mod kept {
    pub(crate) const IRDA_LOW_POWER: u32 = 0xff;
    pub(crate) const INTEGER_BAUD: u32 = 0xffff;
    pub(crate) const FRACTIONAL_BAUD: u32 = 0x3f;
    pub(crate) const LINE_CONTROL: u32 = 0xff;
    pub(crate) const CONTROL: u32 = 0xff87;
    pub(crate) const FIFO_LEVELS: u32 = 0x3f;
    pub(crate) const DMA_CONTROL: u32 = 0x7;
}

/// Bits of the interrupt registers.
pub(super) mod interrupt {
    pub(crate) const RECEIVE: u32 = 1 << 4;
    pub(crate) const TRANSMIT: u32 = 1 << 5;
    pub(crate) const TIME_OUT: u32 = 1 << 6;
    pub(crate) const BREAK: u32 = 1 << 9;
    pub(crate) const OVERRUN: u32 = 1 << 10;
    pub(crate) const ALL: u32 = 0x7ff;
}

/// Bits of an entry of the receive FIFO, above the byte.
pub(super) mod error {
    pub(crate) const BREAK: u16 = 1 << 10;
    pub(crate) const OVERRUN: u16 = 1 << 11;
}
