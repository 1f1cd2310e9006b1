//! A guest that does random things at EL1, for ever: `docs/bare-metal.md` says how it is run.
//!
//! It does one episode after the other, each drawn by a random number generator ([`wild::random`](mayfly_guests::wild::random)). Most are a few
//! instructions that are written into memory and executed (`code.rs`). Some access a system register whose answers the
//! table of registers has, and check them (`registers.rs`). Some drive the virtio devices ([`wild::devices`](mayfly_guests::wild::devices)), or the
//! ITS (`its.rs`). Nearly all end in exceptions. The handler continues after the instruction. After some exceptions it
//! continues with the next episode, with a fresh stack and the MMU off (`entry.rs`). So the guest itself mostly survives.
//! The seed is `seed=` on its command line, and the time. `kinds=` has a bit for each kind of episode that may be drawn; without it, all may.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod code;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod episode;
#[cfg(target_os = "none")]
mod its;
#[cfg(target_os = "none")]
mod registers;
#[cfg(target_os = "none")]
mod said;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-fuzz-guest is a guest, not a process: `make metal-fuzz` builds and starts it"
    );
    std::process::exit(1);
}
