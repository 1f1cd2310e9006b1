//! What can go wrong in a VM's life.

use mayfly_memslot::SlotId;
use mayfly_platform::memory::OutOfMemory;
use mayfly_srcu::BuildError;

use crate::HostFault;

/// Why a call on a VM was refused. The VM is then as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A memory region was refused.
    #[error(transparent)]
    Memory(#[from] mayfly_memslot::Error),
    /// A device or an ioeventfd was refused.
    #[error(transparent)]
    Bus(#[from] mayfly_iobus::Error),
    /// The VM's SRCU domain cannot be built.
    #[error(transparent)]
    Srcu(#[from] BuildError),
    /// There is no memory for what was asked.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The tables were refused.
    #[error(transparent)]
    Stage2(#[from] mayfly_stage2::Error),
    /// The host has no frame for the guest's memory.
    #[error(transparent)]
    Host(#[from] HostFault),
    /// No slot has this number.
    #[error("the VM has no {0}")]
    NoSlot(SlotId),
    /// The slot keeps no dirty log.
    #[error("{0} has no dirty log: set `LOG_DIRTY_PAGES` for it first")]
    NoLog(SlotId),
    /// [`Caches::Coherent`](crate::Caches::Coherent) was asked for, and the instruction caches do not see what is
    /// written to memory: their lines have to be invalidated.
    #[error(
        "the instruction caches are not coherent, and `Caches::Coherent` maintains none: choose `Caches::Reported` or `Caches::Tracked`"
    )]
    InstructionCaches,
    /// The memory is of another machine than the tables: its frame numbers name other frames there.
    #[error(
        "the memory is of another machine than the `Mmu`: create the VM with memory whose `linear_map` is that of the `Mmu`"
    )]
    OtherMachine,
    /// There is a vCPU of this number.
    #[error("vCPU {0} exists already")]
    VcpuExists(u32),
    /// The number of a vCPU is out of range.
    #[error("vCPU {id} is out of range: vCPU numbers are below {limit}")]
    VcpuOutOfRange {
        /// The number asked for.
        id: u32,
        /// The first number that is too large.
        limit: u32,
    },
}

impl Error {
    /// The errno that KVM gives for this.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Memory(error) => error.errno(),
            Self::Bus(error) => error.errno(),
            Self::Srcu(BuildError::OutOfMemory(_))
            | Self::OutOfMemory(_)
            | Self::Host(HostFault::OutOfMemory) => ENOMEM,
            Self::Stage2(error) => error.errno(),
            Self::Host(HostFault::Poisoned) => EHWPOISON,
            Self::Host(_) => EFAULT,
            Self::NoSlot(_) | Self::NoLog(_) => ENOENT,
            Self::VcpuExists(_) => EEXIST,
            Self::Srcu(_)
            | Self::InstructionCaches
            | Self::OtherMachine
            | Self::VcpuOutOfRange { .. } => EINVAL,
        }
    }
}

const ENOENT: i32 = 2;
const ENOMEM: i32 = 12;
const EFAULT: i32 = 14;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const EHWPOISON: i32 = 133;
