//! The frames of a machine, in blocks of powers of two, and the regions that they lie in.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod pool;
mod spans;

pub use pool::{FrameInfo, FramePool, ORDERS};
pub use spans::{Span, Spans};
