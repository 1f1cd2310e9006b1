//! What the roots of a VM share.

use alloc::sync::Arc;

use mayfly_platform::memory::Kept;
use mayfly_platform::sync::AtomicU32;
use mayfly_srcu::Srcu;

use crate::bell::Bell;
use crate::graveyard::Graveyard;
use crate::hold::Holds;
use crate::owed::Ledger;
use crate::own::Own;
use crate::parking::Parking;
use crate::roots::Leaving;
use crate::sequence::Sequence;
use crate::tables::Tables;
use crate::vmid::Vmids;

pub(crate) struct Space {
    pub(crate) tables: Tables,
    pub(crate) parking: Parking,
    pub(crate) sequence: Sequence,
    /// Of invalidations.
    pub(crate) own: Own,
    /// Of replacements of roots.
    pub(crate) retiring: Own,
    pub(crate) graveyard: Graveyard,
    pub(crate) owed: Ledger,
    pub(crate) srcu: Srcu,
    pub(crate) vmids: Vmids,
    pub(crate) bell: Arc<Bell>,
    pub(crate) leaving: Leaving,
    pub(crate) holds: Holds,
    /// What `sequence` has a handle to, which comes before this and so is dropped before it.
    pub(crate) _ended: Ended,
}

/// Keeps the word that tells of ends of invalidations, to which the callers that wake waiters by it have handles.
pub(crate) struct Ended {
    pub(crate) word: Option<Kept<AtomicU32>>,
    pub(crate) bell: Arc<Bell>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(word) = self.word.take() {
            self.bell.leave(word);
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // No root is left, so no CPU is walking any table.
        self.graveyard.clear(&self.tables);
    }
}
