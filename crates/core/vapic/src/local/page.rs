//! The registers as memory, in xAPIC mode.

use crate::address::Mode;
use crate::ioapic::part;
use crate::local::register::Register;
use crate::local::{LocalApic, error};
use crate::timer::Time;
use crate::vapic::{Kick, Vapic};

/// The bytes of the page of registers.
pub const PAGE_SIZE: u64 = 0x1000;

impl<K: Kick> Vapic<K> {
    /// The guest reads `len` bytes at `offset` into the page of its local APIC: 1, 2 or 4 of those that a register has,
    /// which are the first four of each 16. Anything else reads as zero.
    pub fn read(&self, apic: &mut LocalApic, offset: u64, len: u64, now: Time) -> u32 {
        self.advance(apic, now);
        let Some(register) = self.register(apic, offset) else { return 0 };
        if !register.is_read() {
            return 0;
        }
        let value = self.value(apic, register, now) as u32;
        part(value, offset % 16, len).unwrap_or(0)
    }

    /// The guest writes `len` bytes, the low ones of `value`, at `offset` into the page of its local APIC. A register is
    /// written as a whole, by 4 bytes. What is no register, or is not written, or not so, is ignored, and so are bits that a
    /// register does not have.
    pub fn write(&self, apic: &mut LocalApic, offset: u64, len: u64, value: u64, now: Time) {
        self.advance(apic, now);
        let Some(register) = self.register(apic, offset) else { return };
        if !offset.is_multiple_of(16) || len != 4 || !register.is_written(Mode::Xapic) {
            return;
        }
        let value = match register {
            Register::Ldr | Register::Dfr | Register::IcrHigh => value & 0xffff_ffff,
            _ => value & 0xffff_ffff & register.writable(self.config.tsc_deadline),
        };
        self.set(apic, register, value, now);
    }

    /// The register that an access is to. One that there is not is an error (AMD APM volume 2, 16.4.6).
    fn register(&self, apic: &mut LocalApic, offset: u64) -> Option<Register> {
        if apic.mode() != Mode::Xapic || offset >= PAGE_SIZE {
            return None;
        }
        let register = Register::at((offset / 16) as u32, Mode::Xapic);
        if register.is_none() {
            self.record(apic, error::ILLEGAL_REGISTER);
        }
        register
    }
}
