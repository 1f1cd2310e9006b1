//! A kernel that does what no kernel does, and sees what it gets: instructions and MSRs that guests do not have, ports and
//! addresses where nothing is, devices in ways in which they are not made to be used, and all of it at random. It is a
//! bzImage, which the program boots in the place of Linux. Each line that it prints begins with "probe: ".
//!
//! Its command line: `seed=NUMBER rounds=NUMBER`, `measures`, which has it say how long its exits take, and `ends=off`, `ends=triple` or `ends=nowhere`, which is how it ends: it
//! turns itself off, makes a triple fault, or has its tables where there is no memory.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod kernel;

#[cfg(target_os = "none")]
#[path = "probe"]
mod bare {
    pub(super) mod course;
    pub(super) mod vectors;
    pub(super) mod watched;
}

/// What begins each line.
#[cfg(target_os = "none")]
const NAME: &str = "probe";

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("mayfly-x86-probe runs in a VM: scripts/metal-x86");
    std::process::exit(2);
}
