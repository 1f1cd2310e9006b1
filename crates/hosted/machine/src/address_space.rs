//! The host's address space: what a VMM maps, and what backs its VMs' slots.
//!
//! As Linux's `mm`, as far as a hypervisor sees of it. [`HostSpace::mmap`] gives ranges of addresses; their frames come
//! from the [`Arena`](crate::Arena) when they are first resolved (or at once, and contiguous; or the same one everywhere).
//! [`HostSpace::resolve`] is the way from an address to a frame. Whoever uses frames beyond that, as stage 2 does,
//! registers a [`Notifier`].
//!
//! *Order.* `changes` makes changes come one after the other; it is held over all of one, its notifications included.
//! `mappings` is what resolving reads: closed for the moment of the change proper, open while notifiers are called. So
//! a vCPU that resolves never waits for a notifier, and what it resolves during a change may be old: the notifier's
//! sequence tells (start before the change, end after). The exception is a page that is shared (`sharing`).
//!
//! *What is guaranteed.* A frame that a change takes away is given back to the arena after the last `invalidate_end`
//! has returned. So none is given out again before, be it to the same space. A frame that was resolved is good until a
//! notifier hears of its range; for somebody without a notifier, while nobody changes that range.

mod area;
mod error;
mod held;
mod mappings;
mod memory;
mod notifier;
mod numbers;
mod pages;
mod paging;
mod registry;
mod remap;
mod sharing;
mod space;
mod swap;

pub use error::{Error, Fault};
pub use mayfly_vm::Protection as Rights;
pub use memory::{Backing, Protection, Resolved};
pub use notifier::{Change, Notifier, PageChange, Reason};
pub(crate) use numbers::whole_pages;
pub use registry::NotifierId;
pub(crate) use sharing::{Looked, Merged, equal};
pub use space::HostSpace;
