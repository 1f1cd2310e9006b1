//! Memslots: which host memory backs a guest frame. vCPUs read immutable snapshots, and writers replace them.
//!
//! A *memslot* says which host memory backs a range of guest frames. vCPUs look slots up at every fault, so a lookup takes
//! no lock and writes no shared cache line. A writer that changes a slot publishes a new [`Snapshot`] of all slots, under
//! SRCU. The rules and the errors are those of `KVM_SET_USER_MEMORY_REGION` (`kvm_set_memory_region` in Linux v6.18,
//! `virt/kvm/kvm_main.c`).
//!
//! With the feature `std`, which provides `platform::Host`:
//!
//! ```
//! use std::sync::Arc;
//! use mayfly_memslot::{AddressSpace, Flags, Gfn, Gpa, Hva, MemSlots, Region, SlotId};
//! use mayfly_memslot::platform::{Host, Platform};
//! use mayfly_memslot::srcu::{Config, Srcu};
//!
//! let host: Arc<dyn Platform> = Arc::new(Host::new());
//! let domain = Srcu::try_new(Arc::clone(&host), Config::default())?;
//! let slots = MemSlots::try_new(host, &domain)?;
//!
//! slots.set(&Region {
//!     slot: SlotId::main(0),
//!     flags: Flags::empty(),
//!     gpa: Gpa::new(0x10_0000),
//!     size: 0x4000,
//!     backing: Hva::new(0x7f00_0000_0000),
//! })?;
//!
//! let vcpu = domain.reader()?;
//! let section = vcpu.lock();
//! let slot = slots.load(AddressSpace::Main, &section).find(Gfn::new(0x101)).unwrap();
//! assert_eq!(slot.backing_of(Gfn::new(0x101)), Some(Hva::new(0x7f00_0000_1000)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`MemSlots::set`] decides how long a change takes. Creating a slot waits for no vCPU. Any other change waits for the
//! vCPUs that are reading. [`MemSlots::apply`] leaves that decision to its caller.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod backing;
mod backing_index;
mod change;
mod dirty;
mod edit;
mod error;
mod memslots;
mod region;
mod rules;
mod slot;
mod snapshot;

/// What this crate asks of its surroundings, and the SRCU that its readers and writers use. A user of this crate needs to
/// name no other crate.
pub use {mayfly_platform as platform, mayfly_srcu as srcu};

pub use backing::{Backing, FrameRange};
pub use change::{Change, Prepared};
pub use dirty::{DirtyBitmap, DirtyWord};
pub use edit::Edit;
pub use error::Error;
pub use memslots::MemSlots;
pub use region::{AddressSpace, Flags, MAX_PAGES, PRIVATE_SLOTS, Region, SlotId, USER_SLOTS};
pub use slot::Slot;
pub use snapshot::{LastHit, Snapshot};

pub use mayfly_platform::address::{Gfn, Gpa, Hva, PAGE_SHIFT, PAGE_SIZE};
