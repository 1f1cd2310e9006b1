//! Where the kernel runs.

/// The exception level at which the kernel runs, and most of KVM with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelAt {
    /// EL1: KVM has a part of its own at EL2.
    El1,
    /// EL2: with the virtualization host extensions.
    El2,
}
