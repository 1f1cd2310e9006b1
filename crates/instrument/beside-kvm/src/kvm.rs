//! The lifecycles on this kernel's KVM, counted by the PMU, or on x86-64 by the time-stamp counter, and phases of guests of a
//! VMM's. This runs inside the machine that is started with a Linux in it ([`run`](crate::run), [`guests`](crate::guests)).

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod arm64;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod forked;
#[cfg(all(any(target_arch = "aarch64", target_arch = "x86_64"), target_os = "linux"))]
mod guest;
#[cfg(all(any(target_arch = "aarch64", target_arch = "x86_64"), target_os = "linux"))]
mod logged;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod phases;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod registers;
#[cfg(all(any(target_arch = "aarch64", target_arch = "x86_64"), target_os = "linux"))]
mod ring;
#[cfg(all(any(target_arch = "aarch64", target_arch = "x86_64"), target_os = "linux"))]
mod steps;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86;

pub use crate::kernel_at::KernelAt;

use std::ffi::OsString;

use mayfly_lifecycle_steps::Course;

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
use arm64 as arch;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use x86 as arch;

use crate::way::Way;

/// Counts the lifecycles for so many rounds. Returns the lines that say what their steps took.
///
/// # Errors
///
/// What KVM or a counter refuses, and that there is none.
pub fn lives(rounds: u32, kernel_at: KernelAt) -> anyhow::Result<String> {
    all(Course::Lives, None, rounds, kernel_at)
}

/// The same of the course that one of KVM's ways is of.
///
/// # Errors
///
/// As [`lives`].
pub fn by_way(way: Way, rounds: u32, kernel_at: KernelAt) -> anyhow::Result<String> {
    all(way.course(), Some(way), rounds, kernel_at)
}

#[cfg(all(any(target_arch = "aarch64", target_arch = "x86_64"), target_os = "linux"))]
use steps::all;

#[cfg(not(all(any(target_arch = "aarch64", target_arch = "x86_64"), target_os = "linux")))]
fn all(_: Course, _: Option<Way>, _: u32, _: KernelAt) -> anyhow::Result<String> {
    let here = std::env::consts::ARCH;
    anyhow::bail!("lifecycles are counted on Linux of arm64 and x86-64 only, and this is {here}")
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
pub fn phases(_command: &[OsString], _last: &str, _kernel_at: KernelAt) -> anyhow::Result<String> {
    anyhow::bail!("phases are counted on arm64 Linux only, and this is {}", std::env::consts::ARCH)
}
