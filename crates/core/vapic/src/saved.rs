//! The APICs, as they are saved: one section of the IOAPIC, and one a vCPU.
//!
//! What only calls that are under way know is not saved: notices, lives, and numbers of messages. A vCPU that is loaded has
//! a notice, and looks. The priority that senders see follows from the registers, and so do the mode of the timer and
//! whether an APIC is enabled.

use mayfly_platform::sync::Ordering;
use mayfly_state::{Error, Kind, SectionReader, SectionWriter};

use crate::address::{Address, Mode};
use crate::event::Events;
use crate::ioapic::{IDENTIFICATION, PINS};
use crate::local::access::ICR_STATUS;
use crate::local::msr::page_bits;
use crate::local::register::Register;
use crate::local::{ENABLED, LocalApic, error};
use crate::lvt;
use crate::message::FIRST_VECTOR;
use crate::timer::Timer;
use crate::vapic::{Kick, Vapic};

/// The section that [`Vapic::save_ioapic`] writes.
pub const IOAPIC_STATE: Kind = Kind::new("ioapic", 1);

/// The section that [`Vapic::save_local`] writes, by the number of the vCPU.
pub const LOCAL_STATE: Kind = Kind::new("local-apic", 1);

/// An interrupt of a pin is being sent: whether anybody accepts it is not known. The IOAPIC is saved when no call of
/// another's is under way, and not in [`Kick::pause`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the interrupt of pin {pin} is under way")]
pub struct UnderWay {
    /// Which one.
    pub pin: usize,
}

/// The errors that are ever recorded.
const ERRORS: u32 =
    error::SEND_ILLEGAL_VECTOR | error::RECEIVE_ILLEGAL_VECTOR | error::ILLEGAL_REGISTER;

/// The bits of `ICR` that are kept as written.
const ICR: u64 = Register::Icr.writable(true) & !ICR_STATUS;

/// The bits that it has in xAPIC mode, where a destination has 8.
const NARROW: u64 = 0xff00_0000_ffff_ffff;

impl<K: Kick> Vapic<K> {
    /// Writes what all vCPUs share into a section of kind [`IOAPIC_STATE`]: what the APICs are like, the IOAPIC, and how its
    /// lines are driven. No vCPU is in its guest, and no device drives a line meanwhile.
    ///
    /// # Errors
    ///
    /// [`UnderWay`].
    pub fn save_ioapic(&self, to: &mut SectionWriter<'_, '_>) -> Result<(), UnderWay> {
        to.u32(self.vcpus() as u32);
        to.u32(self.config.physical_bits);
        to.flag(self.config.x2apic);
        to.flag(self.config.tsc_deadline);
        to.align();
        to.u32(self.ioapic.select.load(Ordering::Acquire));
        to.u32(self.ioapic.id.load(Ordering::Acquire));
        for pin in 0..PINS {
            to.u64(self.ioapic.entry(pin).saved().ok_or(UnderWay { pin })?);
        }
        Ok(())
    }

    /// Writes what is of the vCPU that `apic` belongs to into a section of kind [`LOCAL_STATE`]. No vCPU is in its guest, and
    /// no device sends an interrupt meanwhile.
    pub fn save_local(&self, apic: &LocalApic, to: &mut SectionWriter<'_, '_>) {
        let mailbox = self.own(apic);
        to.u64(apic.page);
        to.u64(apic.icr);
        apic.timer.save(to);
        for word in mailbox.irr().into_iter().chain(mailbox.tmr()).chain(apic.isr) {
            to.u32(word);
        }
        for entry in apic.lvt {
            to.u32(entry);
        }
        to.u32(apic.svr);
        to.u32(apic.esr);
        to.u32(apic.errors);
        to.u32(mailbox.events().0);
        to.u8(match apic.mode() {
            Mode::Disabled => 0,
            Mode::Xapic => 1,
            Mode::X2apic => 2,
        });
        to.u8(apic.address.logical);
        to.u8(apic.address.model);
        to.u8(apic.tpr);
        to.flag(apic.waits);
    }

    /// Becomes what was saved of an IOAPIC. The APICs were just made: no vCPU has entered, and no line was driven.
    ///
    /// # Errors
    ///
    /// [`Error`] names what no IOAPIC has, or what these APICs are not like. They are of no use then.
    pub fn load_ioapic(&mut self, mut from: SectionReader<'_>) -> Result<(), Error> {
        from.expect_u32("vCPUs", self.vcpus() as u32)?;
        from.expect_u32("bits of an address", self.config.physical_bits)?;
        from.expect_flag("x2APIC mode", self.config.x2apic)?;
        from.expect_flag("TSC deadline", self.config.tsc_deadline)?;
        from.align()?;
        let ioapic = &self.ioapic;
        ioapic.select.store(from.bits("IOREGSEL", 0xff)?, Ordering::Relaxed);
        ioapic.id.store(from.bits("IOAPICID", IDENTIFICATION)?, Ordering::Relaxed);
        for pin in 0..PINS {
            from.of(pin as u32);
            let word = from.u64("IOREDTBL")?;
            let is_entry = ioapic.load(pin, word);
            from.check("IOREDTBL", word, is_entry)?;
        }
        from.of_all();
        from.end()
    }

    /// Becomes what was saved of a vCPU, after [`Vapic::load_ioapic`]. Returns the local APIC of that vCPU, which has no
    /// other. Its timer goes on as the embedder's clocks do: they go on from where they were when it was saved.
    ///
    /// # Errors
    ///
    /// [`Error`] names what no local APIC of vCPU `vcpu` has. The APICs are of no use then.
    pub fn load_local(
        &mut self,
        vcpu: usize,
        mut from: SectionReader<'_>,
    ) -> Result<LocalApic, Error> {
        let apic = self.local_apic(vcpu).ok_or_else(|| from.invalid("vCPU", vcpu as u64))?;
        let page = from.bits64("IA32_APIC_BASE", page_bits(self.config.physical_bits))?;
        let icr = from.bits64("ICR", ICR)?;
        let mut timer = Timer::load(&mut from)?;
        let (irr, tmr) = (vectors(&mut from, "IRR")?, vectors(&mut from, "TMR")?);
        let isr = vectors(&mut from, "ISR")?;
        // What runs was above all that ran, so that each class has one.
        for word in isr {
            let is_one = |half: u32| half & half.wrapping_sub(1) == 0;
            from.check("ISR", word.into(), is_one(word & 0xffff) && is_one(word >> 16))?;
        }
        let mut entries = [0; lvt::ENTRIES];
        for (entry, value) in entries.iter_mut().enumerate() {
            from.of(entry as u32);
            *value = from.bits("LVT", lvt::writable(entry, self.config.tsc_deadline))?;
        }
        from.of_all();
        let is_timer = timer.begin(entries[lvt::TIMER]);
        from.check("timer", entries[lvt::TIMER].into(), is_timer)?;
        let svr = from.bits("SVR", Register::Svr.writable(false) as u32)?;
        let enabled = svr & ENABLED != 0;
        let is_masked = enabled || entries.iter().all(|entry| entry & lvt::MASKED != 0);
        from.check("SVR", svr.into(), is_masked)?;
        let (esr, errors) = (from.bits("ESR", ERRORS)?, from.bits("errors", ERRORS)?);
        let events = Events(from.u32("events")?);
        from.check("events", events.0.into(), events.is_valid())?;
        let mode = match from.u8("mode")? {
            0 => Mode::Disabled,
            1 => Mode::Xapic,
            2 if self.config.x2apic => Mode::X2apic,
            other => return Err(from.invalid("mode", other.into())),
        };
        from.check("ICR", icr, mode == Mode::X2apic || icr & !NARROW == 0)?;
        let (logical, model) = (from.u8("LDR")?, from.u8("DFR")?);
        from.check("DFR", model.into(), model < 16)?;
        let tpr = from.u8("TPR")?;
        let waits = from.flag("waits for its start-up")?;
        from.check("waits for its start-up", waits.into(), !waits || vcpu != 0)?;
        from.end()?;
        let address = Address { mode, enabled, logical, model, life: apic.address.life };
        let lvt = entries;
        let apic =
            LocalApic { address, page, tpr, svr, isr, icr, lvt, timer, esr, errors, waits, ..apic };
        self.own(&apic).load(irr, tmr, events, address);
        self.publish_priority(&apic);
        Ok(apic)
    }
}

/// A set of vectors, of which none is below the first.
fn vectors(from: &mut SectionReader<'_>, field: &'static str) -> Result<[u32; 8], Error> {
    let mut words = [0; 8];
    for (index, word) in (0..).zip(&mut words) {
        from.of(index);
        let allowed = if index == 0 { u32::MAX << FIRST_VECTOR } else { u32::MAX };
        *word = from.bits(field, allowed)?;
    }
    from.of_all();
    Ok(words)
}
