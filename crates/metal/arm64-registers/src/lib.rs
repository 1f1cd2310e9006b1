//! The system registers of arm64: what each is to a guest ([`table`]), and by what values of its own registers EL2
//! keeps guests from those that are hidden ([`controls`]). The table names for each hidden register what hides it
//! ([`means`]).

#![no_std]

#[cfg(test)]
extern crate std;

pub mod controls;
pub mod means;
mod rows;
pub mod sysreg;
pub mod table;
