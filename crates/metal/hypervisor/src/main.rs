//! Mayfly on bare metal: see `docs/bare-metal.md`.

#![cfg_attr(target_os = "none", no_std, no_main)]
// What forks need is not reached there, since no VM is frozen; nor is what the trace and the machine's own devices need.
#![cfg_attr(target_arch = "x86_64", allow(dead_code))]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod bare;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-hypervisor runs on a bare machine, not as a process: `make metal` builds and starts it"
    );
    std::process::exit(1);
}
