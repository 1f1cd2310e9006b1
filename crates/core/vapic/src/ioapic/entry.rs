//! One pin of the IOAPIC, in one word, and its transitions, which are pure; `crate::ioapic` applies each by one
//! compare-exchange.
//!
//! The word is the redirection entry as the guest reads it, with the pin's line in a bit that the guest reads as zero.
//! A line is high when its device asserts it, whatever the entry's polarity is: devices here have no polarity.
//!
//! A level-triggered interrupt is *in service* (`Remote IRR`) from when it is sent until a local APIC says that it has
//! ended. If its line is high then, it is sent again. One that nobody has accepted is in service nowhere, and is sent again
//! when the guest writes its entry, when an interrupt of its vector ends, or when the line rises again.

use crate::address::Destination;
use crate::message::{Delivery, Message};

const DELIVERY_MODE: u32 = 8;
const LOGICAL: u64 = 1 << 11;
const REMOTE_IRR: u64 = 1 << 14;
const LEVEL: u64 = 1 << 15;
const MASKED: u64 = 1 << 16;
const LINE: u64 = 1 << 32;
const DESTINATION: u32 = 56;

/// What the guest writes of the lower half: vector, delivery mode, destination mode, polarity, trigger and mask. The
/// delivery status (bit 12) reads as zero: no message waits for the bus.
const WRITABLE: u64 = 0xff | 7 << DELIVERY_MODE | LOGICAL | 1 << 13 | LEVEL | MASKED;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(pub(crate) u64);

/// An entry after a step, and whether its interrupt is sent.
pub(crate) type Stepped = (Entry, bool);

impl Entry {
    /// Masked, as at power-on.
    pub(crate) const RESET: Self = Self(MASKED);

    const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    const fn with(self, bits: u64, set: bool) -> Self {
        Self(if set { self.0 | bits } else { self.0 & !bits })
    }

    const fn delivery(self) -> Option<Delivery> {
        match Delivery::from_bits((self.0 >> DELIVERY_MODE) as u32) {
            // `Start-up` is reserved here.
            Some(Delivery::Startup) => None,
            delivery => delivery,
        }
    }

    /// Whether its interrupt has an end: NMI and INIT are edges, however they are triggered.
    pub(crate) const fn is_level(self) -> bool {
        match self.delivery() {
            Some(delivery) => self.has(LEVEL) && delivery.is_interrupt(),
            None => false,
        }
    }

    pub(crate) const fn message(self) -> Option<Message> {
        let Some(delivery) = self.delivery() else { return None };
        Some(Message {
            delivery,
            vector: self.0 as u8,
            level: self.is_level(),
            destination: Destination::narrow((self.0 >> DESTINATION) as u8, self.has(LOGICAL)),
        })
    }

    /// Sent, if it is level-triggered, due, and not in service.
    const fn sent_if_due(self) -> Stepped {
        let due = self.is_level() && self.has(LINE) && !self.has(MASKED | REMOTE_IRR);
        (self.with(REMOTE_IRR, due || self.has(REMOTE_IRR)), due)
    }

    /// Its line is driven to `high`. An edge while the pin is masked is lost (Intel 82093AA, 3.2.4).
    pub(crate) const fn with_line(self, high: bool) -> Stepped {
        let rises = high && !self.has(LINE);
        let entry = self.with(LINE, high);
        if self.is_level() {
            if rises { entry.sent_if_due() } else { (entry, false) }
        } else {
            (entry, rises && !self.has(MASKED))
        }
    }

    /// As a half of it reads.
    pub(crate) const fn half(self, upper: bool) -> u32 {
        if upper { (self.0 >> 32) as u32 & 0xff00_0000 } else { self.0 as u32 }
    }

    /// A half of it is written. An edge-triggered interrupt is never in service: Linux has one end that way, where there is
    /// no other (`__eoi_ioapic_pin` in `arch/x86/kernel/apic/io_apic.c`).
    pub(crate) const fn with_half(self, upper: bool, value: u32) -> Stepped {
        let value = value as u64;
        let entry = if upper {
            Self(self.0 & !(0xff << DESTINATION) | value >> 24 << DESTINATION)
        } else {
            Self(self.0 & !WRITABLE | value & WRITABLE)
        };
        let served = entry.has(REMOTE_IRR) && entry.is_level();
        entry.with(REMOTE_IRR, served).sent_if_due()
    }

    /// An interrupt of this vector has ended.
    pub(crate) const fn ended(self, vector: u8) -> Stepped {
        if self.0 as u8 == vector && self.is_level() {
            self.with(REMOTE_IRR, false).sent_if_due()
        } else {
            (self, false)
        }
    }

    /// What was sent as `sent` was accepted by nobody. If it would go to another place now, it is sent again.
    pub(crate) const fn refused(self, sent: Self) -> Stepped {
        if !self.has(REMOTE_IRR) {
            (self, false)
        } else if (self.0 ^ sent.0) & !LINE == 0 {
            (self.with(REMOTE_IRR, false), false)
        } else {
            self.with(REMOTE_IRR, false).sent_if_due()
        }
    }

    /// As at power-on; the line stays.
    pub(crate) const fn reset(self) -> Self {
        Self(Self::RESET.0 | self.0 & LINE)
    }
}
