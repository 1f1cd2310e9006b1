//! The register census: two VMs on one CPU find out whether one sees in a system register what the other has written.
//!
//! Both run this guest, with its MMU off. `census=writes` makes it the first VM, and `census=reads` the second. They
//! take turns by the machine's physical counter, which is the same for both: time is cut into slots, of two halves. In
//! the first half of a slot, the first VM writes a pattern to one register, and waits for the next slot, where it puts
//! back what was there. In the second half, the second VM reads the same register. So the CPU switches between the VMs
//! twice in each slot. The second VM compares what it reads with what it has read before the first slot.
//!
//! There is a slot for each register that `MRS` and `MSR` can name (32,768), for a pattern and for its complement, with
//! both VMs at EL1, and then with both at EL0. `course.rs` has the slots, and `cases.rs` what is shared beside
//! registers. With `slots=readable`, registers that cannot be read at that level have no slot. A VM that is not in time
//! says so.
//!
//! Each VM also compares what it finds with the table of registers (`mayfly-arm64-registers`): a register that the
//! table hides, or does not list, must be undefined, and one of which the table says what it reads as must read as
//! that.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod cases;
#[cfg(target_os = "none")]
mod clock;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod course;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod exempt;
#[cfg(target_os = "none")]
mod steps;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-census-guest is a guest, not a process: `make metal-test` builds and starts it"
    );
    std::process::exit(1);
}
