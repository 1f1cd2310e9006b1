//! What a device is, behind the registers that all of them share.

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::chain::{Chain, Malformed};
use crate::memory::GuestMemory;

/// What a device does with what its driver gives it.
pub(crate) trait Backend {
    /// Its number in virtio 1.2, chapter 5.
    const ID: u32;

    /// How many queues it has, at most [`MAX_QUEUES`](super::mmio::MAX_QUEUES).
    const QUEUES: usize = 1;

    /// The queue whose chains [`Backend::serve`] is given; `None` where chains are taken, and not served.
    const SERVED: Option<usize> = Some(0);

    /// The bits of its own among the features that it offers.
    fn features(&self) -> u64 {
        0
    }

    /// Whether a driver may take these bits without others.
    fn may_take(&self, features: u64) -> bool {
        let _ = features;
        true
    }

    /// Its driver begins anew, and all queues with it.
    fn reset(&mut self) {}

    /// This queue begins anew: what of its chains is under way is forgotten.
    fn forget(&mut self, queue: usize) {
        let _ = queue;
    }

    /// The byte at `offset` into its configuration; 0 behind the end.
    fn config(&self, offset: u64) -> u8 {
        let _ = offset;
        0
    }

    /// The driver writes this number at `offset` into its configuration; while it has the device work, if `works`.
    fn set_config(&mut self, offset: u64, value: u32, works: bool) {
        let _ = (offset, value, works);
    }

    /// The registers of its configuration that its driver's writes alone change.
    const WRITTEN: &'static [u64] = &[];

    /// Those that change also without a write. Of both there are at most [`MOST_WORDS`](super::shown::MOST_WORDS).
    const CHANGED: &'static [u64] = &[];

    /// What it takes from a saved state.
    type Saved;

    /// What another one takes from it that goes on as it is.
    fn state(&self) -> Self::Saved;

    /// Writes what of it is no register.
    fn save(&self, to: &mut SectionWriter<'_, '_>) {
        let _ = to;
    }

    /// Reads what [`Backend::save`] has written, and refuses what is not of a device like this one.
    fn saved(&self, from: &mut SectionReader<'_>) -> Result<Self::Saved, Error>;

    /// Becomes what was saved.
    fn adopt(&mut self, saved: Self::Saved);

    /// Does what a chain asks for, of a driver that has taken these features; how many bytes were written to it. It is
    /// called for chains of [`Backend::SERVED`] alone.
    fn serve(
        &mut self,
        chain: &Chain,
        features: u64,
        memory: &impl GuestMemory,
    ) -> Result<u32, Malformed> {
        let _ = (chain, features, memory);
        Err(Malformed)
    }
}

/// Only this crate's devices are behind [`Mmio`](super::Mmio).
pub(super) mod sealed {
    /// A device of this crate.
    pub trait Device {}
}

/// A device that [`Mmio`](super::Mmio) has behind its registers.
#[allow(private_bounds, reason = "a backend speaks of chains, which are this crate's own")]
pub trait Device: Backend + sealed::Device {}

impl<T: Backend + sealed::Device> Device for T {}
