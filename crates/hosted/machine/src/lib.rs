//! The software machine: it runs Mayfly's VMs in an ordinary process, without privileges.
//!
//! - Each vCPU runs on a real thread ([`CpuThread`]). A [`Cpu`] executes its guest program, a list of [`Instruction`]s.
//! - The guest's accesses go through page tables in real memory ([`Arena`]) and a TLB ([`CpuTlb`]).
//! - Waits, time and barriers are the host's ([`mayfly_platform::Host`]).
//! - A [`Machine`] holds what its VMs share: the hardware ([`Hardware`]), the host's address space ([`HostSpace`], of which
//!   a [`HostMemory`] is a mapping), and the threads that do the deferred work of all VMs.
//!
//! The machine is trusted: it plays the hardware and the host's kernel. A program that acts in its place, also without
//! `unsafe`, can let a guest reach what is not the guest's: by the frames of an [`Arena`], by a [`CpuTlb`], by a
//! [`Telling`], and by a clone of the `Vm` that outlives its [`MachineVm`].
//!
//! ```
//! use std::sync::Arc;
//! use mayfly_machine::{Instruction, Machine, Register};
//! use mayfly_memslot::{Gpa, SlotId};
//! use mayfly_iobus::IoRange;
//! use mayfly_vm::{Bus, Exit};
//!
//! let machine = Machine::new()?;
//! let vm = machine.create_vm()?;
//! let memory = machine.map(1 << 20)?;
//! vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0)))?;
//! let register = Arc::new(Register::default());
//! vm.register_device(Bus::Mmio, IoRange { start: 0xd000_0000, len: 8 }, register.clone())?;
//!
//! let mut vcpu = vm.create_vcpu(0)?;
//! let mut cpu = machine.cpu(vec![
//!     Instruction::Touch { gpa: Gpa::new(0), len: 1 << 20, value: 7 },
//!     Instruction::WriteMmio { gpa: Gpa::new(0xd000_0000), len: 8, value: 42 },
//! ]);
//! assert_eq!(vcpu.run(&mut cpu), Exit::Halt);
//! assert_eq!((memory.read_u64(0x1000), register.value()), (7, 42));
//!
//! drop(vcpu);
//! vm.destroy();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Real threads on real memory; the model checker that looks at the mailboxes includes them by themselves.
#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

pub mod address_space;
pub mod arena;
pub mod cache;
pub mod merger;
pub mod scenario;
pub mod tlb;
pub mod walk;

mod barrier;
mod cpu;
mod device;
mod hardware;
mod joined;
mod lock;
mod machine;
mod memory;
mod mismatch;
mod processors;
mod program;
mod reach;
mod read_mostly;
mod reclaim;
mod recorder;
mod seat;
mod shard;
mod thread;
mod unsteady;
mod worker;
mod world;

pub use address_space::HostSpace;
pub use arena::Arena;
pub use barrier::GuestBarrier;
pub use cache::{DataCache, LINE};
pub use cpu::{ADDRESS_SIZE_FAULT, Cpu};
pub use device::{AnyDevice, Register, Signal};
pub use hardware::Hardware;
pub use machine::{FRAMES, Machine, MachineVcpu, MachineVm, VmOptions};
pub use memory::HostMemory;
pub use mismatch::Mismatch;
pub use processors::{CPUS, Processors};
pub use program::{Instruction, Program};
pub use recorder::{Checked, Recorder, Sink};
pub use thread::{CpuThread, Running, Stopped};
pub use tlb::{CpuTlb, LeftOut, Rigour, Tlbs};
pub use worker::MachineWorker;
pub use world::{Brackets, MachineWorld, Telling};
