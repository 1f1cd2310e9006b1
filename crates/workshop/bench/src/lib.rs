//! Mayfly beside its peers: what is measured, and how. `make bench` runs it; `docs/bench.md` explains what it prints.
//!
//! Each module has one thing that Mayfly and a peer both do, with the same work around it; [`race`] times them in
//! turns, and [`table`] prints and judges.

pub mod addresses;
pub mod bus;
pub mod companion;
pub mod deferred;
pub mod faults;
pub mod guest;
pub mod interrupts;
pub mod liburcu;
pub mod memory;
pub mod partner;
pub mod processors;
pub mod race;
pub mod sections;
pub mod single_thread;
pub mod table;
pub mod tables;
