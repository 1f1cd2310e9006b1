//! The life of a VM: it is created, given memory and devices, run on its vCPUs, changed by its host while it runs, and
//! destroyed. No call waits without need.
//!
//! This crate combines the parts: [`mayfly_srcu`] protects what readers use, [`mayfly_memslot`] describes memory,
//! [`mayfly_stage2`] maps it, and [`mayfly_iobus`] finds devices. The embedder supplies the [`World`]: the platform
//! ([`mayfly_platform::Mmu`]), the host's memory ([`HostMemory`]), and the code that executes a vCPU's instructions
//! ([`Guest`]).
//!
//! # Use
//!
//! With the `testing` feature there is a ready world in a Linux process:
//!
//! ```
//! use std::sync::Arc;
//!
//! use mayfly_vm::iobus::IoRange;
//! use mayfly_vm::memslot::{Flags, Gpa, PAGE_SIZE, Region, SlotId};
//! use mayfly_vm::testing::{Machine, Step};
//! use mayfly_vm::{Bus, Device, Exit, Vm};
//!
//! /// Answers every read with the same byte.
//! struct Constant(u8);
//!
//! impl Device for Constant {
//!     fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
//!         data.fill(self.0);
//!     }
//!
//!     fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {}
//! }
//!
//! let machine = Machine::new(64);
//! let vm = Vm::create(machine.config())?;
//! vm.set_memory_region(&Region {
//!     slot: SlotId::main(0),
//!     flags: Flags::empty(),
//!     gpa: Gpa::new(0),
//!     size: 4 * PAGE_SIZE,
//!     backing: machine.memory().allocate(4)?,
//! })?;
//! vm.register_device(Bus::Mmio, IoRange { start: 0x10_0000, len: 8 }, Arc::new(Constant(1)))?;
//!
//! // Memory is mapped when the guest first touches it; where there is none, a device answers.
//! let mut vcpu = vm.create_vcpu(0)?;
//! let mut guest =
//!     machine.guest([Step::Store(0x1008, 42), Step::Load(0x1008), Step::Load(0x10_0000)]);
//! assert_eq!(vcpu.run(&mut guest), Exit::Halt);
//! assert_eq!(guest.loaded(), [42, 0x0101_0101_0101_0101]);
//!
//! // Returns at once; the tables are freed in the background, here by hand.
//! vm.destroy();
//! drop(vcpu);
//! assert!(machine.reclaim());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who waits for whom
//!
//! | call | waits for |
//! | --- | --- |
//! | [`Vm::create`], [`Vm::create_vcpu`], [`Vm::kick`], all of [`Kicker`] | nothing |
//! | [`Vm::register_device`], [`Vm::register_eventfd`] | nothing |
//! | [`Vm::relocate`] | nothing; at the hard bound it may refuse, and does not wait either |
//! | [`Vm::unregister_device`], [`Vm::unregister_eventfd`] | vCPUs that are handling an exit at that moment |
//! | [`Vm::set_memory_region`] that creates | notifier invalidations |
//! | [`Vm::set_memory_region`] that takes away | notifier invalidations; TLBs, or vCPUs in the guest; vCPUs handling an exit |
//! | [`Vm::harvest_dirty`], [`Vm::harvest_marked`] | TLBs |
//! | [`Vm::invalidate_start`], [`Vm::change_pte`], [`Vm::age`] | TLBs (not to age) |
//! | [`Vm::invalidate_all`], [`Vm::release`] | vCPUs in the guest |
//! | [`Vm::destroy`] | nothing |
//! | [`Vm::wait_reclaimed`] | the reclaimer; vCPUs in the guest, or handling an exit |
//! | [`Vcpu::run`] | nothing; at a fault, a CPU that is changing that very entry, or a host that is taking that very page away, until a request arrives |
//! | the same, where the guest turns caches on or off that the VM [tracks](Caches::Tracked) | TLBs; other flushes |
//!
//! - *Taking away* is to delete, to move, or to change flags. Only [`SlotZap::AllRoots`] waits for vCPUs in the guest,
//!   until each has come out once.
//! - An *invalidation* is the host's, from [`Vm::invalidate_start`] to its end.
//! - *TLBs* stands for what [`Tlb::complete`](mayfly_platform::tlb::Tlb::complete) waits for: accesses, and no exits.
//!
//! A vCPU in the guest reads nothing of the VM's data, so no other call waits for it there.
//!
//! Where the table says "nothing", the old version of the changed data is freed later, in passing
//! ([`Srcu::call`](mayfly_srcu::Srcu::call)), within bounds. Only at the hard bound does the call wait for a grace
//! period. Tables follow the same rule: `destroy` helps the reclaimer where what awaits it has reached its bound, and a
//! call that takes memory away for good leaves tables to the reclaimer where too many await their readers already.

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

mod caches;
mod change;
mod copy_on_write;
mod device;
mod error;
mod fault;
mod going_back;
mod going_over;
mod guest;
mod kicker;
mod memory;
mod migration;
mod notifier;
mod on_bus;
mod places;
mod requests;
mod slots;
mod stall;
#[cfg(all(feature = "testing", not(any(mayfly_loom, mayfly_shuttle))))]
pub mod testing;
mod vcpu;
mod vcpus;
mod vm;
mod world;

/// The parts. A user of this crate names no other crate.
pub use {
    mayfly_iobus as iobus, mayfly_memslot as memslot, mayfly_platform as platform,
    mayfly_srcu as srcu, mayfly_stage2 as stage2,
};

pub use caches::{CacheTraps, Caches, GuestCaches};
pub use change::{Change, PageChange, Protection, Reason};
pub use device::Device;
pub use error::Error;
pub use going_over::GoingOver;
pub use guest::{
    Access, AccessKind, Base, CacheOp, Event, Guest, MMIO_MAX, PortAccess, Translation,
};
pub use kicker::Kicker;
pub use mayfly_platform::cache::{Cache, CacheCapabilities, InstructionCaches};
pub use requests::Requests;
pub use slots::Slots;
pub use stall::DirtyStall;
pub use vcpu::{Exit, Vcpu};
pub use vm::{Bus, Config, SlotZap, Vm};
pub use world::{HostFault, HostMemory, Resolved, World};

/// The examples of the documentation are compiled and run like those of this page.
#[cfg(doctest)]
mod documented {
    #[doc = include_str!("../../../../docs/vm.md")]
    mod life {}

    #[doc = include_str!("../../../../docs/host-changes.md")]
    mod host_changes {}

    #[doc = include_str!("../../../../docs/dirty-log.md")]
    mod dirty_log {}
}
