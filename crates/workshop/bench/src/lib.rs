//! Benchmarks of Mayfly beside its peers. `make bench` runs them; `docs/bench.md` explains the output.
//!
//! Each module has one operation that Mayfly and a peer both have, with the same work around it. [`race`] times them in
//! turns. [`table`] prints the times and compares them with the targets.

pub mod addresses;
pub mod bus;
pub mod companion;
pub mod crowd;
pub mod deferred;
pub mod faults;
pub mod guest;
pub mod heap;
pub mod interrupts;
pub mod liburcu;
pub mod memory;
pub mod partner;
pub mod pointers;
pub mod processors;
pub mod qsbr;
pub mod race;
pub mod sections;
pub mod single_thread;
pub mod sleeper;
pub mod table;
pub mod tables;
