//! The lowest floor: processors, frames and the heap, the serial port, and the trace of what hardware sees.
//!
//! [`arm64`] knows the architecture. The other floors take from it what is re-exported here: the clock and the alarm
//! ([`timer`]), locks ([`spin`]), the processor ([`cpu`]), its interrupts ([`interrupts`]) and what leaves it
//! ([`power_off`]).

mod arm64;
pub(crate) mod cpus;
pub(crate) mod frames;
pub(crate) mod heap;
pub(crate) mod in_use;
pub(crate) mod masked;
pub(crate) mod once;
pub(crate) mod serial;
pub(crate) mod trace;

use arch::zero;
use arm64 as arch;

pub(crate) use arch::this_cpu::{kick, serve_others, vacate_all, vacate_here};
pub(crate) use arch::{cpu, family, interrupts, own, power_off, spin, timer};
/// What only the `arm64` folders of the floors above use.
pub(crate) use arch::{pl011, shared, this_cpu};
