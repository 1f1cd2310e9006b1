//! A guest that does at EL1 whatever its hypervisor might not expect, for ever: `docs/bare-metal.md` says how it is run.
//!
//! What it does comes in episodes, of which each is drawn by a random number generator (`random.rs`): most are a few
//! instructions that are written into memory and executed (`code.rs`). Nearly all end in exceptions. The handler goes on
//! behind the instruction, and after some of them with the next episode, with a fresh stack and the MMU off (`entry.rs`):
//! so the guest itself survives what it does, for the most part. The seed is `seed=` on its command line, and the time;
//! `kinds=` is a bit for each kind of episode that is drawn, all without it.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod code;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod episode;
#[cfg(target_os = "none")]
mod random;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is a guest for a machine of its own: `make metal-fuzz` builds and runs it");
    std::process::exit(1);
}
