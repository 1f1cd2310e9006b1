//! The work of a VM's ITS, which the thread of its devices does.

use alloc::sync::Arc;

use mayfly_devices::memory::GuestMemory;
use mayfly_vgic::{GuestTables, Served};

use crate::bare::devices::lines::Lines;
use crate::bare::devices::turn::Turn;
use crate::bare::devices::virtio::Ram;
use crate::bare::threads;

/// The ITS of a VM.
pub(crate) struct Its {
    lines: Arc<Lines>,
    served: Turn,
}

impl Its {
    /// That of the interrupt controller behind `lines`, if it has one.
    pub(crate) fn of(lines: &Arc<Lines>) -> Option<Self> {
        let its = || Self { lines: Arc::clone(lines), served: Turn::new() };
        lines.controller().has_its().then(its)
    }

    /// Does some of its work. Returns whether there is more.
    pub(crate) fn serve(&self, ram: &Ram<'_>) -> bool {
        let controller = self.lines.controller();
        if !controller.has_its_work() {
            return false;
        }
        let served = controller.serve_its(ram, &mut threads::preemption_point);
        self.served.end();
        threads::preemption_point();
        served != Served::Nothing
    }

    /// Rings for its thread, and waits for it, a millisecond at most.
    pub(crate) fn wait_after(&self, ring: impl FnOnce()) {
        self.served.wait_after(|| {
            ring();
            true
        });
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
