//! Retired instructions, counted by this processor's PMU: at EL0, at EL1 and at EL2, each by a counter of its own
//! (`INST_RETIRED`, event 0x08, with the filters of `PMEVTYPER<n>_EL0`). No counter of a guest's counts meanwhile: those
//! of a vCPU that uses some would take the places of these.

use core::arch::asm;
use core::marker::PhantomData;

/// The event.
const RETIRED: u64 = 0x08;

/// `PMEVTYPER<n>_EL0`: do not count at EL1 (P), at EL0 (U); count at EL2 (NSH).
const NOT_EL1: u64 = 1 << 31;
const NOT_EL0: u64 = 1 << 30;
const EL2: u64 = 1 << 27;

/// How many counters are used: the first ones.
const COUNTERS: u64 = 3;

/// `MDCR_EL2.HPMN`, how many counters are not EL2's alone, and `HPMD`, which keeps those from counting at EL2.
const HPMN: u64 = 0x1f;
const HPMD: u64 = 1 << 17;
/// `PMCR_EL0.E`: those count.
const ENABLE: u64 = 1;

/// Why instructions cannot be counted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCounters {
    /// The processor has no PMU that the architecture describes.
    NoPmu,
    /// It has fewer than three counters.
    Few,
    /// It does not count retired instructions. QEMU does with `-icount` alone.
    NoEvent,
}

impl NoCounters {
    /// In words.
    pub const fn why(self) -> &'static str {
        match self {
            Self::NoPmu => "this processor has no PMU",
            Self::Few => "this processor's PMU has fewer than three counters",
            Self::NoEvent => {
                "this processor's PMU does not count retired instructions (QEMU's does with -icount shift=0)"
            }
        }
    }
}

/// What the counters show.
#[derive(Clone, Copy, Debug)]
pub struct Count([u32; 3]);

impl Count {
    /// Instructions at EL0, EL1 and EL2 since an earlier count, of which there were fewer than 2^32 each.
    pub fn since(self, earlier: Self) -> [u64; 3] {
        core::array::from_fn(|level| u64::from(self.0[level].wrapping_sub(earlier.0[level])))
    }
}

/// The counters, as long as it exists: on the processor that it was made on.
#[derive(Debug)]
pub struct Retired {
    /// `MDCR_EL2` as it was before.
    before: u64,
    _here: PhantomData<*const ()>,
}

impl Retired {
    /// Begins to count.
    ///
    /// # Errors
    ///
    /// [`NoCounters`] says what this processor has not.
    pub fn begin() -> Result<Self, NoCounters> {
        // ID_AA64DFR0_EL1.PMUVer: none, or one of an implementation's own.
        if matches!(crate::read_register!("id_aa64dfr0_el1") >> 8 & 0xf, 0 | 0xf) {
            return Err(NoCounters::NoPmu);
        }
        let counters = crate::read_register!("pmcr_el0") >> 11 & 0x1f;
        if counters < COUNTERS {
            return Err(NoCounters::Few);
        }
        if crate::read_register!("pmceid0_el0") >> RETIRED & 1 == 0 {
            return Err(NoCounters::NoEvent);
        }
        let before = crate::read_register!("mdcr_el2");
        let control = crate::read_register!("pmcr_el0");
        // SAFETY: guests' accesses to the PMU are trapped, as before; counters touch nothing else. They have no interrupt.
        unsafe {
            crate::write_register!("mdcr_el2", before & !(HPMN | HPMD) | counters);
            crate::write_register!("pmintenclr_el1", u64::from(u32::MAX));
            crate::write_register!("pmevtyper0_el0", RETIRED | NOT_EL1);
            crate::write_register!("pmevtyper1_el0", RETIRED | NOT_EL0);
            crate::write_register!("pmevtyper2_el0", RETIRED | NOT_EL0 | NOT_EL1 | EL2);
            crate::write_register!("pmcntenset_el0", (1_u64 << COUNTERS) - 1);
            crate::write_register!("pmcr_el0", control | ENABLE);
            asm!("isb", options(nostack));
        }
        Ok(Self { before, _here: PhantomData })
    }

    /// What they show now.
    #[inline]
    pub fn read(&self) -> Count {
        // SAFETY: a barrier: what is before it in the program is counted, and what is behind it is not.
        unsafe { asm!("isb", options(nostack)) };
        let count = Count([
            crate::read_register!("pmevcntr0_el0") as u32,
            crate::read_register!("pmevcntr1_el0") as u32,
            crate::read_register!("pmevcntr2_el0") as u32,
        ]);
        // SAFETY: as above.
        unsafe { asm!("isb", options(nostack)) };
        count
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: as it was before.
        unsafe {
            crate::write_register!("pmcntenclr_el0", (1_u64 << COUNTERS) - 1);
            crate::write_register!("mdcr_el2", self.before);
            asm!("isb", options(nostack));
        }
    }
}
