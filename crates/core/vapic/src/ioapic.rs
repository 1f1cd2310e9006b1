//! The IOAPIC (Intel 82093AA, with the end-of-interrupt register of its successors): 24 pins, whose interrupts are sent to
//! local APICs.
//!
//! A pin is one word, and all its transitions are compare-exchanges, so devices, vCPUs that write its entry, and vCPUs at
//! which its interrupt ends meet in one order: a line that falls before the end of its interrupt is not sent again, and
//! one that is high is. A message is sent after the step that makes it due, by the thread that made the step, and once. So
//! each call does bounded work, whatever others do meanwhile.
//!
//! The step that makes a level-triggered message due sets `Remote IRR`, says that the message is *under way*, and gives it a
//! number. When it has arrived, or was refused, the sender says so by another step, which counts only if the number is the
//! same still: a message that was refused is in service nowhere. Who changes the entry while its message is under way, or
//! changes whom it names, sends it anew, with another number, since the first may go where nobody takes it. That is a change
//! of the entry itself, and one of how a local APIC is addressed (`Vapic::resend_pins`, a read-modify-write on each pin,
//! behind the store of the address). If such a step comes before the sender's, the sender sees the address as it is then. If
//! it comes after it, it finds the message under way. The first may arrive too, and an interrupt of which the guest has
//! changed the way is then there twice.

mod entry;

use mayfly_platform::sync::{AtomicU32, AtomicU64, Ordering};

use crate::NoSuchPin;
use crate::vapic::{Kick, Vapic};
use entry::{Entry, Stepped};

/// How many pins it has.
pub const PINS: usize = 24;

/// The bytes of its page of registers.
pub const IOAPIC_SIZE: u64 = 0x1000;

const SELECT: u64 = 0x00;
const WINDOW: u64 = 0x10;
const END: u64 = 0x40;

/// The bits of `IOAPICID` that are kept as written.
pub(crate) const IDENTIFICATION: u32 = 0x0f00_0000;

/// `IOAPICVER`: the version from which on there is an end-of-interrupt register, and the last pin.
const VERSION: u32 = 0x20 | (PINS as u32 - 1) << 16;

#[derive(Debug)]
pub(crate) struct Ioapic {
    pub(crate) select: AtomicU32,
    pub(crate) id: AtomicU32,
    entries: [AtomicU64; PINS],
}

impl Ioapic {
    pub(crate) fn new() -> Self {
        Self {
            select: AtomicU32::new(0),
            id: AtomicU32::new(0),
            entries: core::array::from_fn(|_| AtomicU64::new(Entry::RESET.0)),
        }
    }

    /// As at power-on. No other thread uses it meanwhile.
    pub(crate) fn reset(&self) {
        self.select.store(0, Ordering::Relaxed);
        self.id.store(0, Ordering::Relaxed);
        for entry in &self.entries {
            let reset = Entry(entry.load(Ordering::Relaxed)).reset();
            entry.store(reset.0, Ordering::Relaxed);
        }
    }

    pub(crate) fn entry(&self, pin: usize) -> Entry {
        Entry(self.entries[pin].load(Ordering::Acquire))
    }

    /// A pin becomes what was saved of one, if one could have come to that. No other thread uses it meanwhile.
    pub(crate) fn load(&self, pin: usize, saved: u64) -> bool {
        let entry = Entry(saved);
        self.entries[pin].store(entry.0, Ordering::Relaxed);
        entry.is_saved()
    }

    /// The entry, and the half of it, that a register is of.
    fn half(register: u32) -> Option<(usize, bool)> {
        let half = register.checked_sub(0x10)? as usize;
        (half / 2 < PINS).then_some((half / 2, !half.is_multiple_of(2)))
    }
}

impl<K: Kick> Vapic<K> {
    /// Drives the line of a pin: `high` is asserted, whatever the pin's polarity.
    ///
    /// # Errors
    ///
    /// There is no such pin.
    pub fn set_line(&self, pin: usize, high: bool) -> Result<(), NoSuchPin> {
        if pin >= PINS {
            return Err(NoSuchPin(pin));
        }
        self.change(pin, None, |entry| entry.with_line(high));
        Ok(())
    }

    /// The guest reads `len` bytes at `offset` into the IOAPIC's page. What is no register, or is not read so, reads as
    /// zero.
    pub fn read_ioapic(&self, offset: u64, len: u64) -> u32 {
        let value = match offset & !3 {
            SELECT => self.ioapic.select.load(Ordering::Relaxed),
            WINDOW => self.read_window(),
            _ => 0,
        };
        part(value, offset & 3, len).unwrap_or(0)
    }

    /// The guest writes `len` bytes, the low ones of `value`, at `offset` into the IOAPIC's page. The window is written as
    /// a whole. What is no register, or is not written so, is ignored.
    pub fn write_ioapic(&self, offset: u64, len: u64, value: u64) {
        match (offset, len) {
            (SELECT, 1 | 2 | 4) => {
                self.ioapic.select.store(value as u32 & 0xff, Ordering::Relaxed);
            }
            (WINDOW, 4) => self.write_window(value as u32),
            (END, 1 | 2 | 4) => self.end_pins(|vector| vector == value as u8, None),
            _ => {}
        }
    }

    fn read_window(&self) -> u32 {
        let ioapic = &self.ioapic;
        match ioapic.select.load(Ordering::Relaxed) {
            // Identification, and arbitration, which is it too.
            0 | 2 => ioapic.id.load(Ordering::Relaxed),
            1 => VERSION,
            register => Ioapic::half(register).map_or(0, |(pin, upper)| {
                Entry(ioapic.entries[pin].load(Ordering::Acquire)).half(upper)
            }),
        }
    }

    fn write_window(&self, value: u32) {
        match self.ioapic.select.load(Ordering::Relaxed) {
            0 => self.ioapic.id.store(value & IDENTIFICATION, Ordering::Relaxed),
            register => {
                if let Some((pin, upper)) = Ioapic::half(register) {
                    self.change(pin, None, |entry| entry.with_half(upper, value));
                }
            }
        }
    }

    /// Level-triggered interrupts of these vectors have ended at a local APIC: that of the vCPU `by`, if it is known.
    pub(crate) fn end_pins(&self, ended: impl Fn(u8) -> bool, by: Option<usize>) {
        for pin in 0..PINS {
            self.change(pin, by, |entry| {
                if ended(entry.vector()) { entry.ended() } else { (entry, false) }
            });
        }
    }

    /// The vCPU `by` has changed how it is addressed: what nobody has taken is sent again.
    pub(crate) fn resend_pins(&self, by: usize) {
        for pin in 0..PINS {
            // Also if nothing is to be changed: a sender that comes behind this sees the address as it is now.
            self.ioapic.entries[pin].fetch_or(0, Ordering::AcqRel);
            self.change(pin, Some(by), Entry::sent_anew);
        }
    }

    fn step(&self, pin: usize, step: impl Fn(Entry) -> Stepped) -> Stepped {
        let word = &self.ioapic.entries[pin];
        let mut now = word.load(Ordering::Acquire);
        loop {
            let (to, sent) = step(Entry(now));
            if to.0 == now {
                return (to, sent);
            }
            match word.compare_exchange_weak(now, to.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (to, sent),
                Err(seen) => now = seen,
            }
        }
    }

    /// Applies `step` to a pin, and sends what is due by it. The vCPU `by`, if it is known, looks by itself then.
    fn change(&self, pin: usize, by: Option<usize>, step: impl Fn(Entry) -> Stepped) {
        let (sent, due) = self.step(pin, step);
        if !due {
            return;
        }
        let accepted = sent.message().is_some_and(|message| self.deliver(message, by, false));
        if sent.is_level() {
            self.step(pin, |entry| (entry.answered(sent, accepted), false));
        }
    }
}

/// `len` bytes from byte `first` of a register on, if it has them.
pub(crate) fn part(value: u32, first: u64, len: u64) -> Option<u32> {
    match len {
        1 if first < 4 => Some(value >> (8 * first) & 0xff),
        2 if first < 3 => Some(value >> (8 * first) & 0xffff),
        4 if first == 0 => Some(value),
        _ => None,
    }
}
