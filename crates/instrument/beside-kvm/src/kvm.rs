//! The lifecycles on this kernel's KVM, counted by its PMU. This runs inside the machine that [`run`](crate::run)
//! starts with a Linux in it.

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod counted;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod guest;
mod kernel_at;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod logged;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod ring;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod steps;

pub use kernel_at::KernelAt;

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
use mayfly_lifecycle_steps::Course;

use crate::way::Way;

/// Counts the lifecycles for so many rounds. Returns the lines that say what their steps took.
///
/// # Errors
///
/// What KVM or perf refuses.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub fn lives(rounds: u32, kernel_at: KernelAt) -> anyhow::Result<String> {
    steps::all(Course::Lives, Way::WriteProtect, rounds, kernel_at)
}

/// The same of the course of a dirty log, by one of KVM's ways.
///
/// # Errors
///
/// As [`lives`].
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub fn logged(way: Way, rounds: u32, kernel_at: KernelAt) -> anyhow::Result<String> {
    steps::all(Course::DirtyLog, way, rounds, kernel_at)
}

/// As on arm64.
///
/// # Errors
///
/// Always: this is not arm64.
#[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
pub fn lives(_rounds: u32, _kernel_at: KernelAt) -> anyhow::Result<String> {
    anyhow::bail!(
        "lifecycles are counted on arm64 Linux only, and this is {}",
        std::env::consts::ARCH
    )
}

/// As on arm64.
///
/// # Errors
///
/// Always: this is not arm64.
#[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
pub fn logged(_way: Way, rounds: u32, kernel_at: KernelAt) -> anyhow::Result<String> {
    lives(rounds, kernel_at)
}
