//! What is done for a guest when it has come out: its instruction is found, and carried out where it reaches a device.

pub mod address;
pub mod emulation;
pub mod plain;
pub mod walk;
