//! How much there is to merge.

use crate::params::Size;

/// What is done to how many VMs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) vms: u32,
    pub(super) vcpus: u32,
    pub(super) rounds: u32,
    pub(super) memory: Size,
    /// Pages that are merged together, at most.
    pub(super) pages_a_change: u32,
}
