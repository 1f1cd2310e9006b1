//! Sleepable RCU whose grace periods are as urgent as their waiters.
//!
//! Readers announce themselves with plain stores and may block while they are inside. Writers publish a new version, and
//! free the old one when no reader of the old one is left. Three properties are particular here:
//!
//! - A thread that waits for a grace period drives it at once. It never waits for a delay that another caller's grace
//!   period was given. If no reader is inside, the thread does not sleep and needs no other thread.
//! - Any later grace period completes what is deferred ([`Srcu::call`]). What is deferred is bounded in number and bytes
//!   ([`Limits`]). Deferring never allocates, because a [`Callback`] and an [`RcuBox`] carry their own node.
//! - A [`Reader`] needs neither a read-modify-write nor a fence if the platform has an asymmetric barrier
//!   (`membarrier(2)` on Linux). Elsewhere it executes fences. The domain decides which of the two when it is built.
//!
//! With the feature `std`, which provides `platform::Host`:
//!
//! ```
//! use std::sync::Arc;
//! use mayfly_srcu::platform::Host;
//! use mayfly_srcu::{Config, Rcu, RcuBox, Srcu};
//!
//! let domain = Srcu::try_new(Arc::new(Host::new()), Config::default())?;
//! let routes = Rcu::new(&domain, RcuBox::try_new(vec!["a"])?);
//!
//! let reader = domain.reader()?;
//! {
//!     let section = reader.lock();
//!     assert_eq!(routes.load(&section), &["a"]);
//! }
//!
//! // Frees the old version later:
//! routes.replace(RcuBox::try_new(vec!["a", "b"])?).defer();
//! // Waits until no reader can be reading the old version, and returns it:
//! let old = routes.replace(RcuBox::try_new(vec!["b"])?).synchronize_expedited();
//! assert_eq!(*old, ["a", "b"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The top of the module `domain` describes the protocol with its barriers. The argument for the asymmetric barrier is in
//! `docs/srcu.md`.

#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod anonymous;
mod backlog;
mod batches;
mod bell;
mod callback;
mod config;
mod contexts;
mod cookie;
mod deferral;
mod domain;
mod error;
mod handle;
mod limits;
pub mod linux;
mod pointer;
mod rcu_box;
mod reader;
mod record;
mod registry;
mod retired;
mod roster;
mod runners;
mod section;
mod srcu;
mod stats;
#[cfg(feature = "std")]
mod thread;
mod worker;
mod world;

/// What a domain asks of its surroundings. A user of this crate needs to name no other crate.
pub use mayfly_platform as platform;

pub use anonymous::guard::{AnonymousGuard, OwnedAnonymousGuard};
pub use bell::{Asked, Bell};
pub use callback::Callback;
pub use config::{Config, Pace};
pub use cookie::Cookie;
pub use error::BuildError;
pub use limits::Limits;
pub use pointer::{Rcu, RcuOption};
pub use rcu_box::RcuBox;
pub use reader::{OwnedReadGuard, ReadGuard, Reader};
pub use retired::{Polled, Retired};
pub use section::Section;
pub use srcu::Srcu;
pub use stats::Stats;
#[cfg(feature = "std")]
pub use thread::WorkerThread;
pub use worker::Worker;
