//! What a guest talks to, as state machines: no hardware, no threads, no allocation, no unsafe code.
//!
//! - [`pl011`]: the UART, and so the console;
//! - [`psci`] and [`smccc`]: the calls of a guest to its firmware;
//! - [`virtio`]: a disk and a source of entropy, over the guest's [`memory`];
//! - [`entropy`]: what the latter gives;
//! - [`rtc`]: the time of day.
//!
//! There is no network yet.
//!
//! ```
//! use std::cell::Cell;
//! use std::sync::Mutex;
//! use mayfly_devices::line::settle;
//! use mayfly_devices::pl011::Pl011;
//!
//! // Shared by vCPUs, so behind a lock. The line goes to an interrupt controller.
//! let (uart, line) = (Mutex::new(Pl011::new()), Cell::new(false));
//! let drive = || settle(|| uart.lock().unwrap().interrupt(), |high| line.set(high));
//!
//! // The guest unmasks what it receives, and somebody types.
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
//! A device is a value with `read` and `write`, which its embedder keeps behind a lock of its own, and drives the
//! interrupt line of without that lock ([`mod@line`]). All that a guest can say, at any offset and of any value, has an
//! answer: what is reserved reads as zero, and ignores writes.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod entropy;
pub mod line;
pub mod memory;
pub mod pl011;
pub mod psci;
pub mod rtc;
pub mod smccc;
pub mod virtio;

mod workaround;
