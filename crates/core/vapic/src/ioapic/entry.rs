//! One pin of the IOAPIC, in one word, and its transitions, which are pure; `crate::ioapic` applies each by one
//! compare-exchange.
//!
//! The word is the redirection entry as the guest reads it, with the pin's line in a bit that the guest reads as zero.
//! A line is high when its device asserts it, whatever the entry's polarity is: devices here have no polarity.
//!
//! A level-triggered interrupt is *in service* (`Remote IRR`) from when it is sent until a local APIC says that it has
//! ended. If its line is high then, it is sent again. One that nobody has accepted is in service nowhere, and is sent again
//! when the guest writes its entry, when an interrupt of its vector ends, when the line is asserted again, or when a local
//! APIC takes interrupts that it did not take.

use crate::address::Destination;
use crate::message::{Delivery, Message};

const DELIVERY_MODE: u32 = 8;
const LOGICAL: u64 = 1 << 11;
const REMOTE_IRR: u64 = 1 << 14;
const LEVEL: u64 = 1 << 15;
const MASKED: u64 = 1 << 16;
const LINE: u64 = 1 << 32;
/// Its message is under way: it was sent, and its sender does not know yet whether anybody has accepted it.
const UNDER_WAY: u64 = 1 << 33;
/// The number of the message that was sent last: the bits from here to the destination, modulo which it counts.
const NUMBER: u64 = 1 << 34;
const NUMBERS: u64 = (1 << DESTINATION) - NUMBER;
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

    pub(crate) const fn vector(self) -> u8 {
        self.0 as u8
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
        if !self.is_level() || !self.has(LINE) || self.has(MASKED | REMOTE_IRR) {
            return (self, false);
        }
        let number = self.0.wrapping_add(NUMBER) & NUMBERS;
        (Self(self.0 & !NUMBERS | number | REMOTE_IRR | UNDER_WAY), true)
    }

    /// Sent, if it is due, also if it is under way to where it may not go now.
    pub(crate) const fn sent_anew(self) -> Stepped {
        match self.idle().sent_if_due() {
            anew @ (_, true) if self.has(UNDER_WAY) => anew,
            _ => self.sent_if_due(),
        }
    }

    /// Neither in service nor under way.
    const fn idle(self) -> Self {
        self.with(REMOTE_IRR | UNDER_WAY, false)
    }

    /// Its line is driven to `high`. An edge while the pin is masked is lost (Intel 82093AA, 3.2.4).
    pub(crate) const fn with_line(self, high: bool) -> Stepped {
        let rises = high && !self.has(LINE);
        let entry = self.with(LINE, high);
        match (self.is_level(), rises) {
            // One that is under way may have missed that an APIC was enabled while the line was low.
            (true, true) => entry.sent_anew(),
            (true, false) => entry.sent_if_due(),
            (false, _) => (entry, rises && !self.has(MASKED)),
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
        if entry.is_level() { entry.sent_anew() } else { (entry.idle(), false) }
    }

    /// Its interrupt has ended.
    pub(crate) const fn ended(self) -> Stepped {
        if self.is_level() { self.idle().sent_if_due() } else { (self, false) }
    }

    /// What was sent as `sent` was accepted, or by nobody. If it is not the last that was sent, that says nothing.
    pub(crate) const fn answered(self, sent: Self, accepted: bool) -> Self {
        if !self.has(UNDER_WAY) || (self.0 ^ sent.0) & NUMBERS != 0 {
            self
        } else if accepted {
            self.with(UNDER_WAY, false)
        } else {
            self.idle()
        }
    }

    /// As it is saved. `None` while its message is under way.
    pub(crate) const fn saved(self) -> Option<u64> {
        if self.has(UNDER_WAY) { None } else { Some(self.0 & !NUMBERS) }
    }

    /// Whether it is one that is saved: of the bits that there are, and in service only if its interrupt has an end.
    pub(crate) const fn is_saved(self) -> bool {
        let all = WRITABLE | REMOTE_IRR | LINE | 0xff << DESTINATION;
        self.0 & !all == 0 && (self.is_level() || !self.has(REMOTE_IRR))
    }

    /// As at power-on; the line stays.
    pub(crate) const fn reset(self) -> Self {
        Self(Self::RESET.0 | self.0 & LINE)
    }
}
