//! The lives on this kernel's KVM, counted by its PMU: what runs inside the machine that [`run`](crate::run) starts with a
//! Linux in it.

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod counted;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod guest;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod lives;

/// At which exception level the kernel runs, and with it the better part of KVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelAt {
    /// EL1: KVM has a part of its own at EL2.
    El1,
    /// EL2: with the virtualization host extensions.
    El2,
}

/// Has lives be lived for so many rounds, and returns the lines that say what they took.
///
/// # Errors
///
/// What KVM or perf refuses; where this is not arm64, that.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub fn lives(rounds: u32, kernel_at: KernelAt) -> anyhow::Result<String> {
    lives::all(rounds, kernel_at)
}

/// As on arm64, where alone it can be.
///
/// # Errors
///
/// That it cannot be here.
#[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
pub fn lives(_rounds: u32, _kernel_at: KernelAt) -> anyhow::Result<String> {
    anyhow::bail!("lives are counted on arm64 alone, and this is {}", std::env::consts::ARCH)
}
