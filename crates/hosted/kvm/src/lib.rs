//! The lifecycle of a VM through `/dev/kvm`.
//!
//! Every method that an experiment would time is one kernel operation. What surrounds the operation (mapping memory,
//! creating eventfds, placing the guest's code) has methods of its own, so it stays outside of the measurement.
//!
//! | method | kernel operation |
//! | --- | --- |
//! | [`Vm::create`] | `KVM_CREATE_VM` |
//! | [`Vm::create_irqchip`] | `KVM_CREATE_IRQCHIP`: the PIC and the IOAPIC join the buses; on arm64 `KVM_CREATE_DEVICE` |
//! | [`Vm::finish_irqchip`] | on arm64 `KVM_SET_DEVICE_ATTR`: the vGIC is told that all vCPUs are there |
//! | [`Vm::split_irqchip`], [`Vm::create_pit`] | `KVM_ENABLE_CAP` of `KVM_CAP_SPLIT_IRQCHIP`, `KVM_CREATE_PIT2` |
//! | [`Vm::register_irqfd`], [`Vm::unregister_irqfd`] | `KVM_IRQFD` |
//! | [`Vm::register_ioeventfd`], [`Vm::unregister_ioeventfd`] | `KVM_IOEVENTFD` |
//! | [`Vm::set_memory_region`], [`Vm::delete_memory_region`] | `KVM_SET_USER_MEMORY_REGION` |
//! | [`Vm::zap_deleted_slots_alone`] | `KVM_ENABLE_CAP` of `KVM_CAP_DISABLE_QUIRKS2` |
//! | [`Vm::create_vcpu`], [`Vm::create_vcpus`] | `KVM_CREATE_VCPU`, and the mapping of its run page |
//! | [`Vcpu::load`] | `KVM_SET_CPUID2`, `KVM_SET_SREGS`, `KVM_SET_REGS`, `KVM_SET_MP_STATE`; on arm64 as the next |
//! | [`Vcpu::load_cache_switch`], [`Vcpu::start_at`] | `KVM_ARM_VCPU_INIT`, `KVM_SET_ONE_REG` |
//! | [`Vcpu::run_to_exit`] | `KVM_RUN` |
//! | [`Vm::protect_manually`], [`Vm::log_in_rings`] | `KVM_ENABLE_CAP` of `KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2`, `KVM_CAP_DIRTY_LOG_RING` |
//! | [`Vm::dirty_log`], [`Vm::clear_dirty_log`], [`Vm::reset_dirty_rings`] | `KVM_GET_DIRTY_LOG`, `KVM_CLEAR_DIRTY_LOG`, `KVM_RESET_DIRTY_RINGS` |
//! | [`Vm::statistics`], [`Vcpu::statistics`] | `KVM_GET_STATS_FD` |
//! | [`Snapshot::mapped`], [`GuestMemory::give_back`], [`GuestMemory::populate`] | `mmap(2)`, `madvise(2)` |
//! | [`Vm::destroy`] | closing the vCPUs and the VM |
//!
//! [`VmBuilder`] calls these methods in the order that waits least on this kernel. [`Waits`] knows that order.
//!
//! [`Ksm`] is the kernel's own page merger, which this process controls for a while.
//!
//! [`Payload`] is code for the host's architecture: x86-64 or arm64. On arm64 there is [`CacheSwitch`] as well, for a guest
//! that turns its caches on, which has no counterpart on x86. A method that is not for this host's architecture compiles,
//! and returns [`Error::UnsupportedArch`].
//!
//! ```
//! use mayfly_kvm::{Exit, GuestMemory, IoEvent, Kvm, MemoryFlags, Payload, Vm};
//!
//! # if Kvm::open().is_err() { return Ok(()) }
//! let kvm = Kvm::open()?;
//! let memory = GuestMemory::map(2 << 20)?;
//! Payload::install(&memory)?;
//! let doorbell = IoEvent::new(0xd000_0000, 4, None)?;
//!
//! let vm = Vm::create(&kvm)?;
//! vm.create_irqchip()?;
//! vm.register_ioeventfd(&doorbell)?;
//! vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
//! let mut vcpu = vm.create_vcpu(0)?;
//! vm.finish_irqchip()?;
//! vcpu.load(&Payload { touch: Payload::FREE..2 << 20, doorbell: Some(0xd000_0000), port: 0x10 })?;
//! assert_eq!(vcpu.run_to_exit()?, Exit::PortWrite { port: 0x10, value: 1 });
//! assert_eq!(doorbell.take()?, 1);
//! let _memory = vm.destroy(vec![vcpu]);
//! # Ok::<(), mayfly_kvm::Error>(())
//! ```

mod builder;
mod cache_switch;
mod dirty_log;
mod el1;
mod error;
mod exit;
mod facts;
mod host;
mod ioevent;
mod irqfd;
mod ksm;
#[cfg(not(target_arch = "aarch64"))]
mod long_mode;
mod mapping;
mod memory;
mod payload;
mod permission;
mod processor;
mod shared;
mod snapshot;
mod statistics;
mod tick;
mod together;
mod userfault;
mod vcpu;
#[cfg(target_arch = "aarch64")]
mod vgic;
mod vm;
mod waits;

pub use kvm_bindings::KVM_EXIT_DIRTY_RING_FULL;
pub use kvm_ioctls;
pub use vm_memory;

pub use builder::{Backing, Built, Ending, Irqchip, Plan, Reclaimer, Step, Timeline, VmBuilder};
pub use cache_switch::CacheSwitch;
pub use dirty_log::DirtyRing;
pub use error::Error;
pub use exit::Exit;
pub use facts::Facts;
pub use host::Kvm;
pub use ioevent::IoEvent;
pub use irqfd::IrqFd;
pub use ksm::{Company, Ksm, Refused, Stranger};
pub use memory::{GuestMemory, HugePages};
pub use payload::parameters::Payload;
pub use snapshot::Snapshot;
pub use statistics::Statistics;
pub use tick::hz;
pub use userfault::Userfault;
pub use vcpu::Vcpu;
pub use vm::{MemoryFlags, Vm};
pub use waits::{Call, Effort, Pair, Verdict, Waits, measure};
