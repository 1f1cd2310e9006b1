//! What the core costs, counted in instructions: an image for QEMU's `virt` machine that runs the crates at EL2 of a
//! Cortex-A72, steps through each piece of work one instruction at a time, and prints the counts. There is no guest:
//! the image makes its exits up. `make instructions` builds and runs it; see `docs/instructions.md`.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod guest;
#[cfg(target_os = "none")]
mod heap;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod platform;
#[cfg(target_os = "none")]
mod rows;
#[cfg(target_os = "none")]
mod setup;
#[cfg(target_os = "none")]
mod state;
#[cfg(target_os = "none")]
mod step;
#[cfg(target_os = "none")]
mod table;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-instruction-counts runs on a bare machine, not as a process: `make instructions` builds and starts it"
    );
    std::process::exit(1);
}
