//! The devices that a guest talks to, as state machines: no hardware, no threads, no allocation, no unsafe code.
//!
//! - [`pl011`]: the UART, and so the console;
//! - [`uart16550`] and [`cmos`]: the UART of a PC, and its clock, which are not saved yet;
//! - [`psci`] and [`smccc`]: the calls of a guest to its firmware;
//! - [`virtio`]: a disk, a network card, a console, a balloon and a source of entropy, over the guest's [`memory`];
//! - [`entropy`]: the generator behind the source of entropy;
//! - [`rtc`]: the time of day.
//!
//! ```
//! use std::cell::Cell;
//! use std::sync::Mutex;
//! use mayfly_devices::line::settle;
//! use mayfly_devices::pl011::Pl011;
//!
//! // vCPUs share the device, so it is behind a lock. The line goes to an interrupt controller.
//! let (uart, line) = (Mutex::new(Pl011::new()), Cell::new(false));
//! let drive = || settle(|| uart.lock().unwrap().interrupt(), |high| line.set(high));
//!
//! // The guest unmasks the receive interrupt, and the user types.
//! uart.lock().unwrap().write(0x38, 0x50);
//! uart.lock().unwrap().receive(b"y");
//! drive();
//! assert!(line.get());
//!
//! // The guest reads it.
//! assert_eq!(uart.lock().unwrap().read(0x00), u32::from(b'y'));
//! drive();
//! assert!(!line.get());
//! ```
//!
//! A device is a value with `read` and `write`. Its embedder keeps it behind a lock of its own, and drives the device's
//! interrupt line without that lock ([`mod@line`]). Every access of a guest has an answer, at any offset and of any value:
//! reserved registers read as zero, and ignore writes.
//!
//! But for those of a PC, a device is saved by its `save`, as a section of the state of a machine ([`mayfly_state`]), and loaded again by its
//! `load`, which refuses what no such device could have come to.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod cmos;
pub mod entropy;
pub mod line;
pub mod memory;
pub mod pl011;
pub mod psci;
pub mod rtc;
pub mod smccc;
pub mod uart16550;
pub mod virtio;

mod fifo;
mod workaround;

pub use mayfly_state;
