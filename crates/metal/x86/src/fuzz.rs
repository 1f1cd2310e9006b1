//! A guest that does random things on x86-64, without an end: docs/x86.md says how it is run.
//!
//! Its two vCPUs do one episode after the other, each of a kind that is drawn by a random number generator. Nearly all end in
//! exceptions, which lead to the next episode, with the tables, the stack and the modes of before ([`bare::episode`]). The first
//! vCPU has the second begin anew in real mode, again and again, with random code there, or with a switch of tasks in 32 bits. What
//! neither goes on from, a triple fault for instance, ends the VM: then it is to be started again.
//!
//! Its command line has `seed=NUMBER`. Each line that it prints begins with "fuzz: ". Those with "did" say how many episodes of each
//! kind there were since the last of them.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
#[path = "kernel"]
mod kernel {
    pub(crate) mod console;
    pub(crate) mod entry;
    pub(crate) mod power;
}

#[cfg(target_os = "none")]
#[path = "fuzz"]
mod bare {
    mod apic;
    mod code;
    mod episode;
    mod kinds;
    mod low;
    mod machine;
    mod tables;
}

/// What begins each line.
#[cfg(target_os = "none")]
const NAME: &str = "fuzz";

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("mayfly-x86-fuzz runs in a VM: scripts/metal-x86 fuzz");
    std::process::exit(2);
}
