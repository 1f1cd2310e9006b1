//! The life of a VM: it is created, given memory and devices, run on its vCPUs, changed underneath, and destroyed; none
//! of it with a wait that nobody needed.
//!
//! What is here is where the parts meet: [`mayfly_srcu`] for who may still be reading what, [`mayfly_memslot`] for
//! memory, [`mayfly_stage2`] for the tables that map it, [`mayfly_iobus`] for devices. The embedder brings the
//! [`World`]: the platform ([`mayfly_platform::Mmu`]), the host's memory ([`HostMemory`]), and what executes a vCPU's
//! instructions ([`Guest`]).
//!
//! | call | waits for |
//! | --- | --- |
//! | [`Vm::create`], [`Vm::create_vcpu`], [`Vm::kick`], all of [`Kicker`] | nobody |
//! | [`Vm::register_device`], [`Vm::register_eventfd`] | nobody |
//! | [`Vm::relocate`] | nobody, nor at the hard bound, where it may refuse |
//! | [`Vm::unregister_device`], [`Vm::unregister_eventfd`] | vCPUs that are handling an exit at that moment |
//! | [`Vm::set_memory_region`] that creates | invalidations |
//! | [`Vm::set_memory_region`] that takes away | invalidations; TLBs, or vCPUs in the guest; vCPUs handling an exit |
//! | [`Vm::harvest_dirty`] | invalidations; TLBs |
//! | [`Vm::invalidate_start`], [`Vm::change_pte`], [`Vm::age`] | TLBs (not to age) |
//! | [`Vm::release`] | vCPUs in the guest |
//! | [`Vm::destroy`] | nobody |
//! | [`Vm::wait_reclaimed`] | the reclaimer, and vCPUs that have not run since |
//! | [`Vcpu::run`] | nobody; at a fault, whoever is changing that very entry; or taking that very page away, until something is asked of it |
//! | the same, where the guest turns caches on or off that the VM [tracks](Caches::Tracked) | invalidations; TLBs; others who flush |
//!
//! *Taking away* is to delete, to move, or to change flags; vCPUs in the guest are waited for with
//! [`SlotZap::AllRoots`] alone, until they have come out once. An *invalidation* is the host's, from
//! [`Vm::invalidate_start`] to its end. *TLBs* is what [`Tlb::complete`](mayfly_platform::tlb::Tlb::complete) waits
//! for: accesses, and no exits. A vCPU in the guest reads nothing of the VM's, so nobody else waits for it there. Where
//! "nobody" is said, the old version of what was changed is freed later, in passing
//! ([`Srcu::call`](mayfly_srcu::Srcu::call)), within bounds; at the hard bound of those, and only there, the call waits
//! for a grace period. The same goes for tables: `destroy` helps the reclaimer where what awaits it has reached its
//! bound, and who takes memory away for good leaves tables to it where too many await their readers already.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod caches;
mod change;
mod device;
mod error;
mod fault;
mod guest;
mod kicker;
mod memory;
mod notifier;
mod places;
mod requests;
mod vcpu;
mod vcpus;
mod vm;
mod world;

/// The parts, so that who uses this crate needs to name no other.
pub use {
    mayfly_iobus as iobus, mayfly_memslot as memslot, mayfly_platform as platform,
    mayfly_srcu as srcu, mayfly_stage2 as stage2,
};

pub use caches::{CacheTraps, Caches};
pub use change::{Change, PageChange, Protection, Reason};
pub use device::Device;
pub use error::Error;
pub use guest::{Access, AccessKind, CacheOp, Event, Guest, MMIO_MAX, PortAccess, Translation};
pub use kicker::Kicker;
pub use mayfly_platform::cache::{Cache, CacheCapabilities};
pub use requests::Requests;
pub use vcpu::{Exit, Vcpu};
pub use vm::{Bus, Config, SlotZap, Vm};
pub use world::{HostFault, HostMemory, Resolved, World};
