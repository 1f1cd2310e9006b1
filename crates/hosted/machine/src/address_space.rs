//! The host's address space: what a VMM maps, and what backs its VMs' slots.
//!
//! It is Linux's `mm`, as far as a hypervisor sees it. [`HostSpace::mmap`] gives ranges of addresses. Their frames come
//! from the [`Arena`](crate::Arena) when they are first resolved; or at once, and contiguous; or the same frame is
//! everywhere. [`HostSpace::resolve`] is the way from an address to a frame. A user that keeps a frame longer, as stage 2
//! does, registers a [`Notifier`].
//!
//! *Order.* `changes` makes changes come one after the other. A thread holds it over all of one change, its notifications
//! included. Resolving reads `mappings`. A change takes `mappings` for the moment of the change proper, and leaves it free
//! while notifiers are called. So a vCPU that resolves never waits for a notifier. What it resolves during a change may be
//! old; the notifier's sequence tells (start before the change, end after). The exception is a page that is shared
//! (`sharing`).
//!
//! *Guarantees.* A frame that a change takes away goes back to the arena after the last `invalidate_end` has returned. So
//! the arena gives no such frame out before, not even to the same space. A user with a notifier may use a resolved frame
//! until the notifier hears of its range. A user without a notifier may use it as long as no thread changes that range.

mod area;
mod discard;
mod error;
mod held;
mod image;
mod mappings;
mod memory;
mod merging;
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
pub use image::Image;
pub use mayfly_vm::Protection as Rights;
pub use memory::{Backing, Protection, Resolved};
pub use notifier::{Change, Notifier, PageChange, Reason};
pub(crate) use numbers::whole_pages;
pub use registry::NotifierId;
pub(crate) use sharing::{equal, words};
pub use space::HostSpace;
