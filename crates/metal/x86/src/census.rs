//! The register census: two VMs on one CPU find out whether one finds in a register what the other has written.
//!
//! Both run this kernel. `census=writes` makes it the first VM: it tries what it can write, of all MSRs and ports, has a pattern
//! and its complement in turn in all registers, and says so if one of its own has changed. `census=reads` makes it the second: it
//! tries what it can read, of all MSRs, leaves of CPUID and ports, and looks for the pattern in all of it. Then it lets the other
//! VM have the processor, and reads all its registers as soon as it has it again: each has to be as it was before. A VM knows by the
//! gap in its counter that another had the processor.
//!
//! Each line that it prints begins with "census: ". One a kind says what is there, which scripts/metal-x86 compares with a list.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod kernel;

#[cfg(target_os = "none")]
#[path = "census"]
mod bare {
    mod course;
    mod found;
    mod msrs;
    mod ports;
    mod registers;
    mod values;
}

/// What begins each line.
#[cfg(target_os = "none")]
const NAME: &str = "census";

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("mayfly-x86-census runs in a VM: scripts/metal-x86");
    std::process::exit(2);
}
