//! What registers of a local APIC read, and what their writes do, in both modes.

use crate::address::{Destination, Mode, cluster_bit};
use crate::local::register::Register;
use crate::local::{ENABLED, LocalApic, error};
use crate::lvt;
use crate::message::{Delivery, FIRST_VECTOR, Message};
use crate::timer::{Counts, Time};
use crate::vapic::{Kick, Vapic};

/// `Version`: an integrated APIC (0x14, as KVM's: `APIC_VERSION` in `arch/x86/kvm/lapic.c`), and the last entry of the
/// local vector table. Ends of interrupts are always told to the IOAPIC.
const VERSION: u32 = 0x14 | (lvt::ENTRIES as u32 - 1) << 16;

impl<K: Kick> Vapic<K> {
    /// A register as it reads. (The timer was advanced to `now`.)
    pub(crate) fn value(&self, apic: &LocalApic, register: Register, now: Time) -> u64 {
        let wide = apic.mode() == Mode::X2apic;
        let value = match register {
            Register::Id if wide => apic.id(),
            Register::Id => apic.id() << 24,
            Register::Version => VERSION,
            Register::Tpr => apic.tpr.into(),
            Register::Ppr => apic.ppr().into(),
            Register::Ldr if wide => cluster_bit(apic.id()),
            Register::Ldr => u32::from(apic.address.logical) << 24,
            Register::Dfr => u32::from(apic.address.model) << 28 | 0x0fff_ffff,
            Register::Svr => apic.svr,
            Register::Isr(word) => apic.isr[word],
            Register::Tmr(word) => self.own(apic).tmr()[word],
            Register::Irr(word) => self.own(apic).irr()[word],
            Register::Esr => apic.esr,
            Register::Icr if wide => return apic.icr,
            Register::Icr => apic.icr as u32,
            Register::IcrHigh => (apic.icr >> 32) as u32,
            Register::Lvt(entry) => apic.lvt[entry],
            Register::InitialCount => apic.timer.initial(),
            Register::CurrentCount => apic.timer.count(now),
            Register::Divide => apic.timer.divide(),
            Register::Eoi | Register::SelfIpi => 0,
        };
        value.into()
    }

    /// A register is written, with bits that it has. (The timer was advanced to `now`.)
    pub(crate) fn set(&self, apic: &mut LocalApic, register: Register, value: u64, now: Time) {
        let word = value as u32;
        match register {
            Register::Tpr => {
                apic.tpr = word as u8;
                self.publish_priority(apic);
            }
            Register::Eoi => self.end(apic),
            Register::Ldr => {
                apic.address.logical = (word >> 24) as u8;
                self.publish(apic);
            }
            Register::Dfr => {
                apic.address.model = (word >> 28) as u8;
                self.publish(apic);
            }
            Register::Svr => {
                apic.svr = word;
                apic.address.enabled = word & ENABLED != 0;
                if !apic.address.enabled {
                    apic.lvt.iter_mut().for_each(|entry| *entry |= lvt::MASKED);
                }
                self.publish(apic);
            }
            // What has come since the last write is read from now on, and the next error is an interrupt again.
            Register::Esr => (apic.esr, apic.errors) = (apic.errors, 0),
            Register::Icr if apic.mode() == Mode::X2apic => {
                apic.icr = value & !ICR_STATUS;
                self.send(apic);
            }
            Register::Icr => {
                let high = apic.icr >> 32 << 32;
                apic.icr = high | u64::from(word) & !ICR_STATUS;
                self.send(apic);
            }
            Register::IcrHigh => {
                apic.icr = u64::from(word & 0xff00_0000) << 32 | apic.icr & 0xffff_ffff;
            }
            Register::Lvt(entry) => self.set_lvt(apic, entry, word),
            Register::InitialCount => apic.timer.set_initial(word, now),
            Register::Divide => apic.timer.set_divide(word, now),
            Register::SelfIpi => {
                let to = Destination::Physical(apic.id());
                self.send_interrupt(apic, Delivery::Fixed, word as u8, to, false);
            }
            _ => {}
        }
    }

    fn set_lvt(&self, apic: &mut LocalApic, entry: usize, value: u32) {
        let kept = value & lvt::writable(entry, self.config.tsc_deadline);
        let masked = if apic.address.enabled { 0 } else { lvt::MASKED };
        apic.lvt[entry] = kept | masked;
        if entry == lvt::TIMER {
            apic.timer.set_counts(Counts::of_entry(kept));
        }
    }

    /// The guest ends the interrupt that it runs.
    fn end(&self, apic: &mut LocalApic) {
        let Some(vector) = apic.end() else { return };
        self.publish_priority(apic);
        if self.own(apic).is_level(vector) {
            self.end_pins(|ended| ended == vector, Some(apic.vcpu));
        }
    }

    /// What `ICR` says is sent (Intel SDM volume 3, 11.6.1; AMD APM volume 2, 16.5). INIT and start-up go to nobody by a
    /// shorthand that has the sender itself, nor does the lowest priority, as the manuals' tables of what is valid say. NMIs
    /// do, as under KVM.
    fn send(&self, apic: &mut LocalApic) {
        let icr = apic.icr as u32;
        let Some(delivery) = Delivery::from_bits(icr >> 8) else { return };
        let logical = icr >> 11 & 1 != 0;
        let wide = apic.mode() == Mode::X2apic;
        let (destination, except) = match icr >> 18 & 3 {
            0 if wide => (Destination::wide((apic.icr >> 32) as u32, logical), false),
            0 => (Destination::narrow((apic.icr >> 56) as u8, logical), false),
            1 => (Destination::Physical(apic.id()), false),
            2 => (Destination::All, false),
            _ => (Destination::All, true),
        };
        let to_itself = matches!(icr >> 18 & 3, 1 | 2);
        let valid = match delivery {
            Delivery::Fixed | Delivery::Nmi => true,
            Delivery::LowestPriority | Delivery::Startup => !to_itself,
            // The one that has its level de-asserted did something to APICs that had a bus of their own.
            Delivery::Init => !to_itself && (icr >> 14 & 1 != 0 || icr >> 15 & 1 == 0),
        };
        if valid {
            self.send_interrupt(apic, delivery, icr as u8, destination, except);
        }
    }

    fn send_interrupt(
        &self,
        apic: &mut LocalApic,
        delivery: Delivery,
        vector: u8,
        destination: Destination,
        except: bool,
    ) {
        if delivery.is_interrupt() && vector < FIRST_VECTOR {
            self.record(apic, error::SEND_ILLEGAL_VECTOR);
            return;
        }
        let message = Message { delivery, vector, level: false, destination };
        self.deliver(message, Some(apic.vcpu), except);
    }
}

/// The delivery status: a message is sent at once.
pub(crate) const ICR_STATUS: u64 = 1 << 12;
