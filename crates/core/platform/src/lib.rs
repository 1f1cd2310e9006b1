//! What the Mayfly core asks of its surroundings.
//!
//! The core runs in an ordinary process, on bare metal, and under model checkers. It therefore touches none of them
//! directly:
//!
//! - It waits, reads time, orders memory across CPUs and accounts for its work through [`Platform`].
//! - It allocates through [`memory`], where every allocation may fail.
//! - It takes its atomics from [`sync`], where a model checker can replace them.
//!
//! With the `std` feature, `Host` is the platform of a Linux process:
//!
//! ```
//! use mayfly_platform::sync::{AtomicU32, Ordering};
//! use mayfly_platform::{Host, Platform};
//!
//! let (platform, ready) = (Host::new(), AtomicU32::new(0));
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         // A wait may return early, so a caller looks again.
//!         while ready.load(Ordering::Acquire) == 0 {
//!             platform.wait(&ready, 0);
//!         }
//!     });
//!     // The word first, then the call: so no waiter is missed.
//!     ready.store(1, Ordering::Release);
//!     platform.wake(&ready);
//! });
//! ```

#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test, mayfly_loom, mayfly_shuttle))]
extern crate std;

#[cfg(all(mayfly_loom, not(feature = "loom")))]
compile_error!("`--cfg mayfly_loom` needs the feature `loom` of mayfly-platform");
#[cfg(all(mayfly_shuttle, not(feature = "shuttle")))]
compile_error!("`--cfg mayfly_shuttle` needs the feature `shuttle` of mayfly-platform");

pub mod address;
pub mod cache;
pub mod frames;
pub mod lock;
pub mod memory;
pub mod observe;
pub mod sync;
#[cfg(all(feature = "testing", not(any(mayfly_loom, mayfly_shuttle))))]
pub mod testing;
pub mod time;
pub mod tlb;
pub mod vacate;

mod charge;
#[cfg(all(feature = "std", not(any(mayfly_loom, mayfly_shuttle))))]
mod host;
mod layer;
#[cfg(any(mayfly_loom, mayfly_shuttle))]
mod model;
mod platform;
mod unwind;

pub use charge::Op;
#[cfg(all(feature = "std", not(any(mayfly_loom, mayfly_shuttle))))]
pub use host::Host;
pub use layer::Layer;
#[cfg(any(mayfly_loom, mayfly_shuttle))]
pub use model::Model;
#[cfg(mayfly_shuttle)]
pub use model::check_schedules;
pub use platform::{Context, Identity, Mmu, Platform, ReaderBarrier};
pub use unwind::no_unwind;
