//! Which cores are on, as it is saved.

use mayfly_platform::sync::Ordering;
use mayfly_state::{Error, Kind, SectionReader, SectionWriter};

use super::{Core, OFF, ON, PENDING, Psci};

/// The section that [`Psci::save`] writes.
pub const STATE: Kind = Kind::new("psci", 1);

impl<C: AsRef<[Core]>> Psci<C> {
    /// Writes which cores are on into a section of kind [`STATE`]. None of them runs, so that none calls. Where a
    /// pending core begins is the embedder's to keep.
    pub fn save(&self, to: &mut SectionWriter<'_, '_>) {
        let cores = self.cores.as_ref();
        to.u32(cores.len() as u32);
        for core in cores {
            to.u64(core.mpidr);
            // Acquire: of the thread that ran the core, when it was stopped.
            to.u8(core.state.load(Ordering::Acquire) as u8);
        }
    }

    /// A system of `cores` that are on as the saved ones were. These are as many, with the same affinities; whether they
    /// are on does not matter.
    ///
    /// # Errors
    ///
    /// [`Error`]: the saved system has others, or names a state that no core has.
    pub fn load(cores: C, mut from: SectionReader<'_>) -> Result<Self, Error> {
        let own = cores.as_ref();
        from.expect_u32("cores", own.len() as u32)?;
        for (index, core) in (0..).zip(own) {
            from.of(index);
            from.expect("affinity", core.mpidr)?;
            let state = from.u8("power state")?;
            from.check("power state", state.into(), is_state(state.into()))?;
            core.state.store(state.into(), Ordering::Release);
        }
        from.end()?;
        Ok(Self::new(cores))
    }
}

const fn is_state(state: u32) -> bool {
    matches!(state, ON | OFF | PENDING)
}
