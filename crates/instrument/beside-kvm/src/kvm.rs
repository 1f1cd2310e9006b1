//! The lifecycles on this kernel's KVM, and phases of guests of a VMM's, counted by the PMU. This runs inside the machine
//! that is started with a Linux in it ([`run`](crate::run), [`guests`](crate::guests)).

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod counted;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod forked;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod guest;
mod kernel_at;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod logged;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod perf;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod phases;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod registers;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod ring;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod steps;

pub use kernel_at::KernelAt;

use std::ffi::OsString;

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
    steps::all(Course::Lives, None, rounds, kernel_at)
}

/// The same of the course that one of KVM's ways is of.
///
/// # Errors
///
/// As [`lives`].
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub fn by_way(way: Way, rounds: u32, kernel_at: KernelAt) -> anyhow::Result<String> {
    steps::all(way.course(), Some(way), rounds, kernel_at)
}

/// Runs a program, and counts the phases of which it says the ends on its standard output; the last one, `last`, ends with
/// the program. Returns the lines of the phases, and what else it has said.
///
/// # Errors
///
/// What perf refuses, and how the program has failed.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub fn phases(command: &[OsString], last: &str, kernel_at: KernelAt) -> anyhow::Result<String> {
    phases::all(command, last, kernel_at)
}

/// As on arm64.
///
/// # Errors
///
/// Always: this is not arm64.
#[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
pub fn phases(_command: &[OsString], _last: &str, kernel_at: KernelAt) -> anyhow::Result<String> {
    lives(1, kernel_at)
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
pub fn by_way(_way: Way, rounds: u32, kernel_at: KernelAt) -> anyhow::Result<String> {
    lives(rounds, kernel_at)
}
