//! A GIC, as it is saved: one section of the distributor, and one a vCPU.
//!
//! Nothing is in a list register then. So an interrupt is a word without requests, and `RWP` is zero. A vCPU that has asked
//! for a register's true state asks again, and is answered at once.
//!
//! Inboxes are hints, and are not saved. A vCPU that is loaded looks at what is active on it, and at what may be delivered
//! to it: that is what the parties that made an interrupt so would have put there.

use mayfly_platform::sync::Ordering;
use mayfly_state::{Error, Kind, SectionReader, SectionWriter};

use crate::state::State;
use crate::vgic::{ALL_GROUPS, PRIVATE};
use crate::{CpuInterface, Kick, Vgic};

/// The section that [`Vgic::save_distributor`] writes.
pub const DISTRIBUTOR_STATE: Kind = Kind::new("gic", 1);

/// The section that [`Vgic::save_vcpu`] writes, by the number of the vCPU.
pub const VCPU_STATE: Kind = Kind::new("gic-vcpu", 1);

const SGIS: u32 = 16;

/// The bits that `ICH_VMCR_EL2` has: the enables of both groups, `VAckCtl`, `VFIQEn`, `VCBPR`, `VEOIM`, two binary points
/// and the priority mask.
const VMCR: u64 = 0x1f | 1 << 9 | 0x3f << 18 | 0xff << 24;

/// A vCPU is in its guest: its list registers have interrupts whose state is not known. The GIC is saved when all vCPUs
/// have come out ([`Vgic::leave`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vCPU {vcpu} is in its guest, and has interrupts in its list registers")]
pub struct VcpuInside {
    /// Which one.
    pub vcpu: usize,
}

impl<K: Kick> Vgic<K> {
    /// Writes the distributor and the SPIs into a section of kind [`DISTRIBUTOR_STATE`]. No vCPU is in its guest, and no
    /// device drives a line meanwhile.
    ///
    /// # Errors
    ///
    /// [`VcpuInside`].
    pub fn save_distributor(&self, to: &mut SectionWriter<'_, '_>) -> Result<(), VcpuInside> {
        to.u32(self.vcpus() as u32);
        to.u32(self.spis() as u32);
        to.u32(self.groups.load(Ordering::Acquire));
        to.align();
        for word in &*self.spis {
            save(State(word.load(Ordering::Acquire)), to)?;
        }
        Ok(())
    }

    /// Writes what is of the vCPU that `cpu` belongs to into a section of kind [`VCPU_STATE`]: its redistributor, its SGIs
    /// and PPIs, and its CPU interface.
    ///
    /// # Errors
    ///
    /// [`VcpuInside`].
    pub fn save_vcpu(
        &self,
        cpu: &CpuInterface,
        to: &mut SectionWriter<'_, '_>,
    ) -> Result<(), VcpuInside> {
        let vcpu = cpu.vcpu();
        let Some(own) = self.redistributors.get(vcpu).filter(|_| !cpu.is_inside()) else {
            return Err(VcpuInside { vcpu });
        };
        for word in &own.interrupts {
            save(State(word.load(Ordering::Acquire)), to)?;
        }
        to.u64(cpu.registers.vmcr);
        for register in cpu.registers.ap0r.into_iter().chain(cpu.registers.ap1r) {
            to.u32(register);
        }
        to.flag(own.asleep.load(Ordering::Acquire) != 0);
        Ok(())
    }

    /// Becomes what was saved of a distributor. The GIC was just made: no vCPU has entered.
    ///
    /// # Errors
    ///
    /// [`Error`] names what no distributor of as many vCPUs, SPIs and links has. The GIC is of no use then.
    pub fn load_distributor(&mut self, mut from: SectionReader<'_>) -> Result<(), Error> {
        let (vcpus, spis) = (from.u32("vCPUs")?, from.u32("SPIs")?);
        from.check("vCPUs", vcpus.into(), vcpus as usize == self.vcpus())?;
        from.check("SPIs", spis.into(), spis as usize == self.spis())?;
        self.groups.store(from.bits("GICD_CTLR", ALL_GROUPS)?, Ordering::Relaxed);
        from.align()?;
        for own in &mut self.redistributors {
            own.0.inbox.begin_shared();
        }
        let mut buffer = [0; 32];
        // Most words are like the one before, which is checked, and which no vCPU has to look at.
        let mut quiet = State::reset(false, false).0;
        for (first, words) in (PRIVATE..).step_by(buffer.len()).zip(self.spis.chunks(buffer.len()))
        {
            let saved = &mut buffer[..words.len()];
            from.words("SPI", saved)?;
            for ((intid, word), saved) in (first..).zip(words).zip(saved) {
                if *saved == quiet {
                    word.store(quiet, Ordering::Relaxed);
                    continue;
                }
                from.of(intid);
                let state = State::from_saved(*saved, self.vcpus(), None, false, false);
                let state = state.ok_or_else(|| from.invalid("SPI", *saved))?;
                word.store(state.0, Ordering::Relaxed);
                match self.looks_at(0, intid, state) {
                    Some(vcpu) => self.redistributors[vcpu].inbox.put(intid),
                    None => quiet = *saved,
                }
            }
        }
        from.of_all();
        from.end()
    }

    /// Becomes what was saved of a vCPU. Returns the CPU interface of that vCPU, which has no other.
    ///
    /// # Errors
    ///
    /// [`Error`] names what no vCPU `vcpu` of a GIC with such links has. The GIC is of no use then.
    pub fn load_vcpu(
        &mut self,
        vcpu: usize,
        mut from: SectionReader<'_>,
    ) -> Result<CpuInterface, Error> {
        let cpu = self.cpu_interface(vcpu);
        let mut cpu = cpu.ok_or_else(|| from.invalid("vCPU", vcpu as u64))?;
        let mut bits = 0;
        let mut words = [0; PRIVATE as usize];
        from.words("SGI or PPI", &mut words)?;
        // As above; what holds of an SGI or a link does not hold of others.
        let mut quiet = None;
        for (intid, saved) in (0..).zip(words) {
            let own = &self.redistributors[vcpu].interrupts[intid as usize];
            let (is_sgi, linked) = (intid < SGIS, self.link(intid) != 0);
            if quiet == Some((saved, is_sgi, linked)) {
                own.store(saved, Ordering::Relaxed);
                continue;
            }
            from.of(intid);
            let state = State::from_saved(saved, self.vcpus(), Some(vcpu), is_sgi, linked);
            let state = state.ok_or_else(|| from.invalid("SGI or PPI", saved))?;
            own.store(state.0, Ordering::Relaxed);
            if self.looks_at(vcpu, intid, state).is_some() {
                bits |= 1 << intid;
            } else {
                quiet = Some((saved, is_sgi, linked));
            }
        }
        from.of_all();
        cpu.registers.vmcr = from.bits64("ICH_VMCR_EL2", VMCR)?;
        for register in &mut cpu.registers.ap0r {
            *register = from.u32("ICH_AP0R_EL2")?;
        }
        for register in &mut cpu.registers.ap1r {
            *register = from.u32("ICH_AP1R_EL2")?;
        }
        let asleep = from.flag("GICR_WAKER")?;
        let own = &mut self.redistributors[vcpu].0;
        own.asleep.store(asleep.into(), Ordering::Relaxed);
        own.inbox.begin_own(bits);
        from.end()?;
        Ok(cpu)
    }

    /// The vCPU that has to look at an interrupt, if one has to.
    pub(crate) fn looks_at(&self, vcpu: usize, intid: u32, state: State) -> Option<usize> {
        if state.is_active() {
            Some(state.owner())
        } else if state.is_deliverable(ALL_GROUPS) {
            self.target(vcpu, intid, state)
        } else {
            None
        }
    }
}

pub(crate) fn save(state: State, to: &mut SectionWriter<'_, '_>) -> Result<(), VcpuInside> {
    to.u64(state.saved().ok_or(VcpuInside { vcpu: state.owner() })?);
    Ok(())
}
