//! What a VM promises, seen by guests of a few accesses.

#[path = "../common/mod.rs"]
mod common;

mod accesses;
mod bars;
mod caches;
mod clean;
mod copy_on_write;
mod destroy;
mod devices;
mod dirty;
mod dirty_marked;
mod errors;
mod eventfds;
mod faults;
mod instructions;
mod interrupts;
mod kinds;
mod moves;
mod notifier;
mod notifier_in_place;
mod pairs;
mod panics;
mod parked;
mod points;
mod ports;
mod refusals;
mod requests;
mod slots;
mod waiting;
mod zap;
