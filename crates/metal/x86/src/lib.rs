//! The architecture under AMD SVM, as far as it is data: what a CPU has of it, the control block of a virtual machine and
//! why a guest came out ([`svm`]), how this program and a Linux are started ([`boot`]), the machine that a guest finds
//! ([`machine`]), and what is done for a guest that has come out ([`guest`]). What executes privileged instructions is built for a
//! bare machine alone, and is in `bare`.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod boot;
pub mod guest;
pub mod machine;
pub mod svm;

#[cfg(all(target_arch = "x86_64", target_os = "none"))]
pub mod bare;
