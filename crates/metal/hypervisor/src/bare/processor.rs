//! The lowest floor: processors, frames and the heap, the serial port, and the trace of what hardware sees.
//!
//! Its `arch` knows the architecture. The other floors take from it what is re-exported here: the clock and the alarm
//! ([`timer`]), locks ([`spin`]), the processor ([`cpu`]), its interrupts ([`interrupts`]) and what leaves it
//! ([`power_off`]).

#[cfg(target_arch = "aarch64")]
mod arm64;
pub(crate) mod cpus;
pub(crate) mod frames;
pub(crate) mod heap;
pub(crate) mod in_use;
pub(crate) mod masked;
pub(crate) mod once;
pub(crate) mod own;
pub(crate) mod serial;
pub(crate) mod spin;
pub(crate) mod trace;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
use arm64 as arch;
#[cfg(target_arch = "x86_64")]
use x86 as arch;

pub(crate) use arch::this_cpu::{kick, serve_others};
pub(crate) use arch::{NO_RANDOM, cpu, family, interrupts, power_off, timer, traced, zero};
/// What only the architecture's folders of the floors above use.
pub(crate) use arch::{shared, this_cpu};
