//! What Linux guests do while they are counted: accesses to a disk ([`disk`]), requests to each other and bulk
//! ([`network`]).

#![forbid(unsafe_code)]

pub mod disk;
pub mod network;
