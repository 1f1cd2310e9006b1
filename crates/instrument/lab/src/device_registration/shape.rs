//! How much a VM has.

/// What a VM has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// ioeventfds, beside the doorbell's.
    pub(super) devices: u32,
    /// vCPUs, beside the one that is created while they run.
    pub(super) vcpus: u32,
}
