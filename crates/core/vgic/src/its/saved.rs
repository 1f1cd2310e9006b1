//! An ITS and the LPIs, as they are saved: one section. No LPI is in a list register then, and no thread serves the ITS.
//!
//! Whether there is work is not saved: an ITS that is loaded looks.

use mayfly_platform::sync::{AtomicU32, Ordering};
use mayfly_state::{Error, Kind, SectionReader, SectionWriter};

use super::control::STOPPING_UNREAD;
use super::lpi::{PENDBASER, PROPBASER};
use super::tables::Its;
use crate::frame::{BASER_BITS, CBASER_BITS, OFFSET};
use crate::saved::{VcpuInside, save};
use crate::state::{FIRST_LPI, State};
use crate::{Kick, PART, Vgic};

/// The section that [`Vgic::save_its`] writes.
pub const ITS_STATE: Kind = Kind::new("its", 1);

/// How many events are saved or loaded between two pauses.
const EVENTS: usize = 64;

impl<K: Kick> Vgic<K> {
    /// Whether it has an ITS, which is saved.
    pub const fn has_its(&self) -> bool {
        self.its.is_some()
    }

    /// Writes the ITS, the LPIs, and the redistributors' part of them into a section of kind [`ITS_STATE`]. No vCPU is in
    /// its guest, and no thread serves the ITS, or sends an interrupt. Of a GIC without an ITS, nothing. `pause` is called
    /// now and then, for a caller that has interrupts masked.
    ///
    /// # Errors
    ///
    /// [`VcpuInside`].
    pub fn save_its(
        &self,
        to: &mut SectionWriter<'_, '_>,
        pause: &mut dyn FnMut(),
    ) -> Result<(), VcpuInside> {
        let Some(its) = &self.its else { return Ok(()) };
        let load = |word: &AtomicU32| word.load(Ordering::Acquire);
        to.u32(its.config.lpis as u32);
        to.u32(its.config.device_bits);
        to.u32(its.config.event_bits);
        to.u32(load(&its.enabled));
        to.align();
        for register in [&its.cbaser, &its.cwriter, &its.creadr, &its.propbaser] {
            to.u64(register.load(Ordering::Acquire));
        }
        for register in &its.basers {
            to.u64(register.load(Ordering::Acquire));
        }
        for own in &self.redistributors {
            to.u64(own.lpis.table.load(Ordering::Acquire));
            to.u32(load(&own.lpis.state));
            to.align();
        }
        for word in its.devices.iter().chain(&its.collections) {
            to.u32(load(word));
        }
        for (first, events) in (0..).step_by(EVENTS).zip(its.events.chunks(EVENTS)) {
            for (number, word) in (first..).zip(events) {
                let word = load(word);
                if word != 0 {
                    to.u32(number);
                    to.u32(word);
                }
            }
            pause();
        }
        to.u32(its.events.len() as u32);
        to.align();
        for lpis in self.lpis.chunks(PART) {
            for word in lpis {
                save(State(word.load(Ordering::Acquire)), to)?;
            }
            pause();
        }
        Ok(())
    }

    /// Becomes what was saved of an ITS, after [`Vgic::load_distributor`]. Of a GIC without one, nothing.
    ///
    /// # Errors
    ///
    /// [`Error`] names what no ITS of as many LPIs, devices, events and vCPUs has. The GIC is of no use then.
    pub fn load_its(
        &mut self,
        mut from: SectionReader<'_>,
        pause: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let vcpus = self.vcpus();
        let Some(its) = &self.its else { return from.end() };
        for (field, number) in [
            ("LPIs", its.config.lpis as u32),
            ("bits of a device", its.config.device_bits),
            ("bits of an event", its.config.event_bits),
        ] {
            from.expect_u32(field, number)?;
        }
        its.enabled.store(from.bits("GITS_CTLR", 1)?, Ordering::Relaxed);
        from.align()?;
        load_registers(its, &mut from)?;
        for (vcpu, own) in (0..).zip(&self.redistributors) {
            from.of(vcpu);
            let table = from.bits64("GICR_PENDBASER", PENDBASER)?;
            let state = from.u32("GICR_CTLR")?;
            from.check("GICR_CTLR", state.into(), state <= STOPPING_UNREAD)?;
            from.align()?;
            own.lpis.table.store(table, Ordering::Relaxed);
            own.lpis.state.store(state, Ordering::Relaxed);
        }
        from.of_all();
        load_mappings(its, vcpus, &mut from, pause)?;
        from.align()?;
        for (intid, word) in (FIRST_LPI..).zip(&self.lpis) {
            from.of(intid);
            let saved = from.u64("LPI")?;
            let state = State::from_saved(saved, vcpus, None, true, false);
            let state = state.filter(|state| state.is_lpi());
            let state = state.ok_or_else(|| from.invalid("LPI", saved))?;
            word.store(state.0, Ordering::Relaxed);
            if let Some(vcpu) = self.looks_at(0, intid, state) {
                self.redistributors[vcpu].inbox.put(intid);
            }
            if intid as usize % PART == PART - 1 {
                pause();
            }
        }
        from.of_all();
        its.has_work();
        from.end()
    }
}

fn load_registers(its: &Its, from: &mut SectionReader<'_>) -> Result<(), Error> {
    its.cbaser.store(from.bits64("GITS_CBASER", CBASER_BITS)?, Ordering::Relaxed);
    for (field, register) in [("GITS_CWRITER", &its.cwriter), ("GITS_CREADR", &its.creadr)] {
        // It may be beyond the queue, where two vCPUs wrote the queue and its end at the same time. Nothing is read there.
        register.store(from.bits64(field, OFFSET)?, Ordering::Relaxed);
    }
    its.propbaser.store(from.bits64("GICR_PROPBASER", PROPBASER)?, Ordering::Relaxed);
    for register in &its.basers {
        register.store(from.bits64("GITS_BASER", BASER_BITS)?, Ordering::Relaxed);
    }
    Ok(())
}

fn load_mappings(
    its: &Its,
    vcpus: usize,
    from: &mut SectionReader<'_>,
    pause: &mut dyn FnMut(),
) -> Result<(), Error> {
    for device in &its.devices {
        let bits = from.u32("device")?;
        from.check("device", bits.into(), bits <= its.config.event_bits)?;
        device.store(bits, Ordering::Relaxed);
    }
    for collection in &its.collections {
        let target = from.u32("collection")?;
        from.check("collection", target.into(), target as usize <= vcpus)?;
        collection.store(target, Ordering::Relaxed);
    }
    // In their order; their number ends them.
    let (mut next, end) = (0, its.events.len() as u32);
    for count in 1.. {
        let number = from.u32("event")?;
        from.check("event", number.into(), (next..=end).contains(&number))?;
        let Some(event) = its.events.get(number as usize) else { break };
        let word = from.u32("mapping")?;
        from.check("mapping", word.into(), its.is_event(word))?;
        event.store(word, Ordering::Relaxed);
        next = number + 1;
        if count % EVENTS == 0 {
            pause();
        }
    }
    Ok(())
}
