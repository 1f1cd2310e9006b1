//! What the host has for guests.

use std::fs;

use crate::host::memory::available;

/// What decides which VMs can be run on KVM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Bytes of memory, if the host says.
    pub(super) available: Option<u64>,
    /// Whether memory comes in huge pages where a process asks for it.
    pub(super) huge_pages: bool,
}

impl Facts {
    pub(super) fn gather() -> Self {
        let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            available: available(),
            // The mode in force stands in brackets; without the file, the kernel knows none.
            huge_pages: enabled.is_ok_and(|modes| !modes.contains("[never]")),
        }
    }
}
