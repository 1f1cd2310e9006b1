//! What an experiment compares: one way of doing the work, on one backend.

use mayfly_record::Backend;

/// One way of doing the work.
///
/// The variant [`BASELINE`](Self::BASELINE) is what reports compare all others with. The
/// running kernel as it is on KVM is a variant, too.
#[derive(Debug, PartialEq, Eq)]
pub struct Variant {
    /// Where it runs. A name that runs on both backends is two variants.
    pub backend: Backend,
    /// The name on the command line and in records.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
}

impl Variant {
    /// The name of the variant that others are compared with.
    pub const BASELINE: &'static str = mayfly_record::BASELINE;

    /// The running kernel's KVM.
    pub const KERNEL: Self = Self {
        backend: Backend::Kvm,
        name: "kernel",
        summary: "/dev/kvm, as the running kernel has it",
    };
}
