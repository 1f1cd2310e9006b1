//! A GIC that is as another one is: for VMs that begin as one and the same.
//!
//! A GIC that was loaded has been checked. So a copy of it checks nothing again: words, hints and mappings are copied as
//! they are. Nothing is in a list register of the one that is copied, as nothing is of one that is saved.

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU32, AtomicU64, CacheLine, Ordering};

use crate::collect::{half, try_collect, try_copy, word};
use crate::its::tables::Its;
use crate::saved::VcpuInside;
use crate::state::State;
use crate::vgic::Redistributor;
use crate::{Kick, PART, Vgic};

/// Why a GIC is not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCopied {
    /// A vCPU is in its guest.
    #[error(transparent)]
    Inside(#[from] VcpuInside),
    /// No memory for it. `ENOMEM`.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl<K: Kick> Vgic<K> {
    /// A GIC that is as this one is, with a `kick` of its own. No vCPU is in its guest, and nobody changes an interrupt
    /// meanwhile. Each vCPU of the copy takes a clone of the [`CpuInterface`](crate::CpuInterface) that its like has here.
    /// `pause` is called as by [`Vgic::try_with_pauses`].
    ///
    /// # Errors
    ///
    /// [`NotCopied`].
    pub fn try_copy<L: Kick>(
        &self,
        kick: L,
        pause: &mut dyn FnMut(),
    ) -> Result<Vgic<L>, NotCopied> {
        let copy = Vgic {
            redistributors: try_collect(self.redistributors.len(), |vcpu| {
                if vcpu % PART == PART - 1 {
                    pause();
                }
                let own = &self.redistributors[vcpu];
                Ok(CacheLine(Redistributor {
                    interrupts: core::array::from_fn(|intid| word(&own.interrupts[intid])),
                    inbox: own.inbox.try_copy()?,
                    asleep: half(&own.asleep),
                    asked: AtomicU64::new(0),
                    lpis: own.lpis.copy(),
                }))
            })?,
            spis: try_copy(&self.spis, word, pause)?,
            lpis: try_copy(&self.lpis, word, pause)?,
            its: self.its.as_ref().map(|its| its.try_copy(pause)).transpose()?,
            groups: half(&self.groups),
            recalled: AtomicU32::new(0),
            list_registers: self.list_registers,
            links: self.links,
            kick,
        };
        copy.check_at_rest()?;
        Ok(copy)
    }

    /// Nothing is in a list register.
    fn check_at_rest(&self) -> Result<(), VcpuInside> {
        let states = || {
            let own = self.redistributors.iter().flat_map(|own| &own.interrupts);
            let words = own.chain(&self.spis).chain(&self.lpis);
            words.map(|word| State(word.load(Ordering::Relaxed)))
        };
        // Most have none: one look at all of them together.
        if !State(states().fold(0, |all, state| all | state.0)).is_loaded() {
            return Ok(());
        }
        let loaded = states().find(|state| state.is_loaded());
        loaded.map_or(Ok(()), |state| Err(VcpuInside { vcpu: state.owner() }))
    }

    /// Bytes of memory that it has allocated.
    pub fn heap_bytes(&self) -> usize {
        let own = self.redistributors.iter().map(|own| own.inbox.heap_bytes());
        size_of_val(&*self.redistributors)
            + own.sum::<usize>()
            + size_of_val(&*self.spis)
            + size_of_val(&*self.lpis)
            + self.its.as_ref().map_or(0, Its::heap_bytes)
    }
}
