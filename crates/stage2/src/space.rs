//! What the roots of a VM share.

use alloc::sync::Arc;

use mayfly_srcu::Srcu;

use crate::graveyard::Graveyard;
use crate::parking::Parking;
use crate::reclaim::Bell;
use crate::roots::Leaving;
use crate::sequence::Sequence;
use crate::tables::Tables;
use crate::vmid::Vmids;

pub(crate) struct Space {
    pub(crate) tables: Tables,
    pub(crate) parking: Parking,
    pub(crate) sequence: Sequence,
    pub(crate) graveyard: Graveyard,
    pub(crate) srcu: Srcu,
    pub(crate) vmids: Vmids,
    pub(crate) bell: Arc<Bell>,
    pub(crate) leaving: Leaving,
}

impl Drop for Space {
    fn drop(&mut self) {
        // No root is left, so nobody is walking any table.
        self.graveyard.clear(&self.tables);
    }
}
