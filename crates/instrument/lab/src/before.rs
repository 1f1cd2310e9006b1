//! Earlier designs: structures that Mayfly replaced by others. The experiments measure them.

pub(crate) mod dirty_log;
pub(crate) mod notifiers;
pub(crate) mod tdp_mmu;
pub(crate) mod teardown;
pub(crate) mod unmap;
