//! The architecture under AMD SVM: what a CPU has of it, and the control block of a virtual machine, as data that the host
//! tests. What executes privileged instructions is the program `mayfly-x86`, which is for the target `x86_64-unknown-none`.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod svm;
