//! The work of a VM's ITS, which the thread of its devices does.

use alloc::sync::Arc;

use mayfly_devices::memory::GuestMemory;
use mayfly_vgic::{GuestTables, Served};

use super::lines::Lines;
use super::virtio::Ram;
use crate::bare::processor::timer;
use crate::bare::threads::{self, Bell};

/// The ITS of a VM.
pub(super) struct Its {
    lines: Arc<Lines>,
    /// Rings when some of its work is done.
    served: Bell,
}

impl Its {
    /// That of the interrupt controller behind `lines`, if it has one.
    pub(super) fn of(lines: &Arc<Lines>) -> Option<Self> {
        let its = || Self { lines: Arc::clone(lines), served: Bell::new() };
        lines.controller().has_its().then(its)
    }

    /// Does some of its work. Returns whether there is more.
    pub(super) fn serve(&self, ram: &Ram<'_>) -> bool {
        let controller = self.lines.controller();
        if !controller.has_its_work() {
            return false;
        }
        let served = controller.serve_its(ram, &mut threads::preemption_point);
        self.served.ring();
        threads::preemption_point();
        served != Served::Nothing
    }

    /// Rings for its thread, and waits for it, a millisecond at most.
    pub(super) fn wait_after(&self, ring: impl FnOnce()) {
        let seen = self.served.rung();
        ring();
        self.served.wait(seen, timer::ticks() + timer::frequency() / 1000);
    }
}

impl GuestTables for Ram<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        GuestMemory::read(self, address, into).is_ok()
    }

    fn write(&self, address: u64, from: &[u8]) -> bool {
        GuestMemory::write(self, address, from).is_ok()
    }
}
