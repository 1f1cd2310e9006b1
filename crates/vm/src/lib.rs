//! The life of a VM: it is created, given memory and devices, run on its vCPUs, changed underneath, and destroyed; none
//! of it with a wait that nobody needed.
//!
//! What is here is where the parts meet: [`mayfly_srcu`] for who may still be reading what, [`mayfly_memslot`] for
//! memory, [`mayfly_iobus`] for devices. The embedder brings the world ([`mayfly_platform::Platform`]) and what
//! executes a vCPU's instructions ([`Guest`]).
//!
//! | call | waits for |
//! | --- | --- |
//! | [`Vm::create`], [`Vm::create_vcpu`] | nobody |
//! | [`Vm::register_device`], [`Vm::register_eventfd`] | nobody |
//! | [`Vm::set_memory_region`] that creates | nobody |
//! | [`Vm::set_memory_region`] that deletes, moves or changes flags | vCPUs that are handling an exit at that moment |
//! | [`Vm::unregister_device`], [`Vm::unregister_eventfd`] | vCPUs that are handling an exit at that moment |
//! | [`Vm::destroy`] | nobody |
//!
//! A vCPU in the guest is not waited for: it reads nothing of the VM's there. Where "nobody" is said, the old version
//! of what was changed is freed later, in passing ([`Srcu::call`](mayfly_srcu::Srcu::call)), within bounds; at the hard
//! bound of those, and only there, the call waits for a grace period.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod device;
mod error;
mod fault;
mod guest;
mod memory;
mod notifier;
mod requests;
mod vcpu;
mod vcpus;
mod vm;
mod world;

pub use device::Device;
pub use error::Error;
pub use guest::{Access, Event, Guest, MMIO_MAX, PortAccess, Translation};
pub use notifier::Reason;
pub use requests::Requests;
pub use vcpu::{Exit, Vcpu};
pub use vm::{Bus, Config, SlotZap, Vm};
pub use world::{Cache, HostFault, HostMemory, Resolved, World};
