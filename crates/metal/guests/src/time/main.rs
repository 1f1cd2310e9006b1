//! A guest that uses time. A word of its parameters selects how:
//!
//! - `guest=spins`: all its vCPUs work without an end;
//! - `guest=counts:FROM-TO`: the same, and they count the loops that they do between two moments, in milliseconds of the
//!   machine's counter, which all VMs share. It prints the count;
//! - `guest=disturbs`: all its vCPUs make exits and faults, and sleep for 250 us at a time;
//! - `guest=reads`: one vCPU has its disk and its console work without an end: it reads the disk in requests of 64 KiB,
//!   and prints while it waits for them;
//! - `guest=floods`: one vCPU has its card send the longest frames to all cards of its network, without an end;
//! - `guest=storms:COUNT`: all its vCPUs wake at once, so often, by one software interrupt to all, by one register that
//!   makes 32 interrupts pending, and by timers that are due at the same moment, and the groups of its interrupt
//!   controller are turned off and on;
//! - `guest=overfills`: one vCPU has more interrupts pending than there are list registers, takes the last of those that
//!   are there, and touches a page with the next instruction, 8,192 times;
//! - `guest=gaps:COUNT`: for so many milliseconds all its CPUs read the counter over and over, with a timer that is
//!   due every 5 ms. It prints the longest time between two reads of one CPU;
//! - `guest=times:COUNT`: one vCPU sleeps for 1 ms by its virtual timer, so often, and prints how late it went on. It
//!   does so where it has no device tree, too;
//! - `guest=busy:COUNT-CPU`: the same, on that CPU, while all CPUs work: that one does not sleep until its timer is due,
//!   and the others do as for `guest=gaps`.
//!
//! It runs without a hypervisor, too, as a kernel at EL1: so it measures what QEMU itself does.
//!
//! It lies anywhere in memory, with its MMU off.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-time-guest is a guest, not a process: `make metal-test` builds and starts it"
    );
    std::process::exit(1);
}

#[cfg(target_os = "none")]
mod bare;
#[cfg(target_os = "none")]
mod card;
#[cfg(target_os = "none")]
mod devices;
#[cfg(target_os = "none")]
mod disk;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
#[path = "../queue.rs"]
mod queue;
