//! Sleepable RCU whose grace periods are as urgent as whoever waits for them.
//!
//! Readers announce themselves with plain stores and may block while inside; writers publish a new version, and free
//! the old one when no reader of the old one is left. Three things are particular here:
//!
//! - Who waits for a grace period drives it, at once, and never waits for a delay that somebody else's was given. Where
//!   no reader is inside, nobody sleeps and no other thread takes part.
//! - What is deferred ([`Srcu::call`]) rides along: any later grace period completes it. It is bounded in number and
//!   bytes ([`Limits`]), and deferring never allocates, because a [`Callback`] and an [`RcuBox`] carry their own node.
//! - A [`Reader`] needs neither a read-modify-write nor a fence where the platform has an asymmetric barrier
//!   (`membarrier(2)` on Linux); elsewhere it executes fences. Which of the two is decided when the domain is built.
//!
//! With the feature `std`, which gives `platform::Host`:
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
//! // Frees the old version later, in passing:
//! routes.replace(RcuBox::try_new(vec!["a", "b"])?).defer();
//! // Waits until nobody can be reading the old version, and gives it back:
//! let old = routes.replace(RcuBox::try_new(vec!["b"])?).synchronize_expedited();
//! assert_eq!(*old, ["a", "b"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The protocol, with its barriers, is written out at the top of the module `domain`; the argument for the asymmetric
//! barrier is in `docs/srcu.md`.

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

/// What a domain asks of the world, so that who uses this crate needs to name no other.
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
