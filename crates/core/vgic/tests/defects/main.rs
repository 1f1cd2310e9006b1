//! What virtual GICs have got wrong, each by its own test: here it is right.

mod frames;
mod guest;
#[path = "../common/hardware.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod hardware;
mod lines;
mod list_registers;
mod vcpus;
