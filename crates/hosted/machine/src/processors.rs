//! What processors a machine has.

use std::num::NonZeroU32;

use crate::walk::AddressSizes;

/// The most CPUs that there are at a time.
pub const CPUS: u32 = 256;

/// What processors a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors {
    /// The number of CPUs, at most [`CPUS`], which vCPUs use in turns, and whose TLBs keep what each vCPU has left. If there
    /// is none, each [`Cpu`](crate::Cpu) has a CPU of its own.
    pub shared: Option<NonZeroU32>,
    /// After how many steps a guest comes out, and goes on on the next CPU where they are shared; or never, by itself.
    /// Where they are shared, a guest that never comes out keeps others from running.
    pub slice: Option<u32>,
    /// How many bits VMIDs have.
    pub vmid_bits: u32,
    /// How many bits physical addresses have (Arm: `ID_AA64MMFR0_EL1.PARange`, and what `VTCR_EL2.PS` makes of it;
    /// x86: CPUID `8000_0008`). A walk that an entry leads further faults, and the guest comes out with
    /// [`ADDRESS_SIZE_FAULT`](crate::ADDRESS_SIZE_FAULT). The machine's frames begin at 30 bits.
    pub pa_bits: u32,
    /// How many bits guest physical addresses have (Arm: `VTCR_EL2.T0SZ`); or as many as the format's. Of what lies
    /// beyond, nothing is found, whatever the tables say.
    pub ipa_bits: Option<u32>,
    /// Whether an invalidation that is complete may have accesses under way all the same that were translated by what it
    /// invalidated, until another invalidation, whichever, is complete: errata 1286807 of Cortex-A76, 2441007 of
    /// Cortex-A55, 2441009 of Cortex-A510. The machine's platform makes the other one
    /// ([`LeftOut::Repeat`](crate::LeftOut::Repeat)).
    pub completes_early: bool,
    /// Whether a reader under SRCU executes a fence, as in Linux, also where the host could spare it one.
    pub fenced: bool,
}

impl Default for Processors {
    /// One for each, without errata; a VMID of 16 bits, as with Arm's `FEAT_VMID16`, and physical addresses of 52, the
    /// most that any of the formats has.
    fn default() -> Self {
        Self {
            shared: None,
            slice: Some(1 << 14),
            vmid_bits: 16,
            pa_bits: 52,
            ipa_bits: None,
            completes_early: false,
            fenced: false,
        }
    }
}

impl Processors {
    /// `cpus` of them, on which guests take short turns.
    ///
    /// # Panics
    ///
    /// If that is 0.
    pub fn shared(cpus: u32) -> Self {
        let shared = Some(NonZeroU32::new(cpus).expect("a machine has a CPU"));
        Self { shared, slice: Some(1 << 8), ..Self::default() }
    }

    /// How far their addresses go.
    pub(crate) fn address_sizes(&self) -> AddressSizes {
        let Self { pa_bits, ipa_bits, .. } = *self;
        AddressSizes { pa_bits, ipa_bits: ipa_bits.unwrap_or(AddressSizes::ANY.ipa_bits) }
    }

    /// How many there are at most.
    pub(crate) fn count(&self) -> u32 {
        self.shared.map_or(CPUS, NonZeroU32::get)
    }
}
