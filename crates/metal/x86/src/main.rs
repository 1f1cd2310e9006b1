//! Boots on x86-64, and runs a Linux in a VM under AMD SVM (`scripts/metal-x86`).

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod program;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("mayfly-x86 runs on bare metal: scripts/metal-x86");
    std::process::exit(2);
}
