//! A guest that checks what kernels expect of their machine: both timers, the interrupt controller, performance
//! counters, debug exceptions, system errors, LPIs, PSCI, and the identification of devices. It prints a line for each expectation, and how many held.
//!
//! Its MMU is off. It has up to three vCPUs, which begin at `secondary` with a function's address in x0. It never writes
//! `GICR_WAKER`. With `guest=resets` on its command line it resets the machine instead, in each run; with `guest=its` it
//! checks LPIs alone, which it does only where there is an ITS; with `guest=fails` it checks an `SError` of its own, and with
//! `guest=spared` that it takes none of another VM's.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod counters;
#[cfg(target_os = "none")]
mod debug;
#[cfg(target_os = "none")]
mod devices;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod errors;
#[cfg(target_os = "none")]
mod interrupts;
#[cfg(target_os = "none")]
mod its;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod overflow;
#[cfg(target_os = "none")]
mod power;
#[cfg(target_os = "none")]
mod timer;
#[cfg(target_os = "none")]
mod timers;

#[cfg(target_os = "none")]
extern "C" fn main(tree: usize) -> ! {
    power::reset_if_asked(tree);
    if machine::has_word(tree, b"guest=fails") {
        errors::check_own();
        machine::end()
    }
    if machine::has_word(tree, b"guest=spared") {
        errors::check_others();
        machine::end()
    }
    interrupts::enable();
    its::check(tree);
    if machine::has_word(tree, b"guest=its") {
        machine::end()
    }
    devices::check();
    interrupts::check();
    timers::check();
    counters::check();
    debug::check();
    power::check();
    machine::end()
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-expects-guest is a guest, not a process: `make metal-test` builds and starts it"
    );
    std::process::exit(1);
}
