//! Whether a redistributor takes LPIs: the top of `lpi.rs` has the states.

use mayfly_platform::sync::{AtomicU32, AtomicU64, Ordering};

use crate::collect::{half, word};

const OFF: u32 = 0;
const STARTING: u32 = 1;
const ON: u32 = 2;
const STOPPING: u32 = 3;
/// The last of the states.
pub(crate) const STOPPING_UNREAD: u32 = 4;

/// A redistributor's part of LPIs.
#[derive(Debug, Default)]
pub(crate) struct LpiControl {
    /// [`OFF`] to [`STOPPING_UNREAD`].
    pub(crate) state: AtomicU32,
    /// `GICR_PENDBASER`.
    pub(crate) table: AtomicU64,
}

impl LpiControl {
    pub(crate) fn copy(&self) -> Self {
        Self { state: half(&self.state), table: word(&self.table) }
    }

    pub(crate) fn reset(&self) {
        self.state.store(OFF, Ordering::Relaxed);
        self.table.store(0, Ordering::Relaxed);
    }

    /// Whether LPIs that come are taken.
    pub(crate) fn accepts(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), STARTING | ON)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), STOPPING | STOPPING_UNREAD)
    }

    /// Whether LPIs were turned off before the whole of the table was read.
    pub(crate) fn is_unread(&self) -> bool {
        self.state.load(Ordering::Acquire) == STOPPING_UNREAD
    }

    pub(crate) fn is_off(&self) -> bool {
        self.state.load(Ordering::Acquire) == OFF
    }

    pub(crate) fn is_starting(&self) -> bool {
        self.state.load(Ordering::Acquire) == STARTING
    }

    /// The tables are read.
    pub(crate) fn started(&self) {
        self.step(STARTING, ON);
    }

    /// The table is written.
    pub(crate) fn stopped(&self) {
        let _ = self.step(STOPPING, OFF) || self.step(STOPPING_UNREAD, OFF);
    }

    fn step(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The guest turns LPIs on or off. Whether the thread is to do something for it.
    #[must_use]
    pub(crate) fn enable(&self, on: bool) -> bool {
        if on {
            return self.step(OFF, STARTING);
        }
        self.step(STARTING, STOPPING_UNREAD) || self.step(ON, STOPPING)
    }
}
