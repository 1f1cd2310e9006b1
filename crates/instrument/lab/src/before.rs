//! Designs that were: structures that Mayfly replaced by others, so that the experiments can measure them.

pub(crate) mod notifiers;
pub(crate) mod tdp_mmu;
pub(crate) mod teardown;
pub(crate) mod unmap;
