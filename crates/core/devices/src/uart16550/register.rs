//! Bits of the registers.

/// Interrupt enable.
pub(super) mod interrupt {
    pub(crate) const RECEIVED: u8 = 1 << 0;
    pub(crate) const SENT: u8 = 1 << 1;
    pub(crate) const LINE: u8 = 1 << 2;
    pub(crate) const MODEM: u8 = 1 << 3;
    pub(crate) const ALL: u8 = 0x0f;
}

/// Interrupt identification.
pub(super) mod identification {
    pub(crate) const MODEM: u8 = 0x0;
    pub(crate) const NONE: u8 = 0x1;
    pub(crate) const SENT: u8 = 0x2;
    pub(crate) const RECEIVED: u8 = 0x4;
    pub(crate) const LINE: u8 = 0x6;
    pub(crate) const TIME_OUT: u8 = 0xc;
    pub(crate) const FIFOS: u8 = 0xc0;
}

/// FIFO control.
pub(super) mod fifo {
    pub(crate) const ENABLE: u8 = 1 << 0;
    pub(crate) const CLEAR_RECEIVED: u8 = 1 << 1;
}

/// Line control.
pub(super) mod line {
    pub(crate) const DIVISOR: u8 = 1 << 7;
}

/// Line status.
pub(super) mod line_status {
    pub(crate) const READY: u8 = 1 << 0;
    pub(crate) const OVERRUN: u8 = 1 << 1;
    /// The transmitter's register, and all of it.
    pub(crate) const EMPTY: u8 = 0x60;
}

/// Modem control.
pub(super) mod modem {
    pub(crate) const DTR: u8 = 1 << 0;
    pub(crate) const RTS: u8 = 1 << 1;
    pub(crate) const OUT1: u8 = 1 << 2;
    pub(crate) const OUT2: u8 = 1 << 3;
    pub(crate) const LOOP_BACK: u8 = 1 << 4;
    pub(crate) const ALL: u8 = 0x1f;
}

/// Modem status.
pub(super) mod modem_status {
    pub(crate) const CTS: u8 = 1 << 4;
    pub(crate) const DSR: u8 = 1 << 5;
    pub(crate) const RI: u8 = 1 << 6;
    pub(crate) const DCD: u8 = 1 << 7;
    pub(crate) const CONNECTED: u8 = CTS | DSR | DCD;

    /// What has changed, as bits 3 to 0 have it: that of RI tells its end alone.
    pub(crate) const fn changes(before: u8, now: u8) -> u8 {
        let changed = (before ^ now) & (CTS | DSR | DCD) | before & !now & RI;
        changed >> 4
    }
}
