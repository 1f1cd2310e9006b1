//! The types of which an embedder's VMs consist.

use mayfly_memslot::Backing;
use mayfly_platform::address::Pfn;
use mayfly_platform::sync::AtomicU64;
use mayfly_stage2::{Format, Level, MemoryType, Permissions};

use crate::Device;

/// The kinds that an embedder chooses, once, for all its VMs.
pub trait World: 'static {
    /// Its devices.
    type Device: Device + 'static;
    /// What stands behind a memslot.
    type Backing: Backing;
    /// How its CPUs translate guest addresses.
    type Format: Format;
    /// Knows which frames the host's memory is in.
    type Memory: HostMemory<Self::Backing>;
}

/// The host's memory, as a VM asks it.
///
/// When something that it said holds no longer, the embedder brackets the change with
/// [`Vm::invalidate_start`](crate::Vm::invalidate_start) and the drop of what that returns.
///
/// # Safety
///
/// What is said here is what the guest gets, and it does with it what it likes: any frame that is named may be the
/// hypervisor's own.
///
/// - [`resolve`](HostMemory::resolve) names frames that the guest may have with the rights that are said, by accesses
///   of that type: as many as a block of the level has, of guest memory, or of a device that is passed through; none
///   that Rust code has a reference into, but for atomics; none of tables. They are frames of the machine whose
///   [linear map](HostMemory::linear_map) is named.
/// - They are the guest's until they are taken away, and nothing but this takes them: a
///   [`Vm::invalidate_start`](crate::Vm::invalidate_start) of them that leaves nothing, or less, has returned, and is
///   not ended before `resolve` says something else; or a [`Vm::change_pte`](crate::Vm::change_pte) within it has; or
///   the slot was deleted, or the VM [released](crate::Vm::release), by a call that has returned. (What is done to the
///   tables by [`Vm::stage2`](crate::Vm::stage2) besides takes nothing away: a fault may bring it back.) That holds for
///   every VM that has been created with this memory, by whatever code: memory that cannot tell all of them takes nothing
///   away.
/// - `B` counts as [`Backing`](mayfly_memslot::Backing) says: by its positions the VM finds where it has the memory that
///   is taken away.
///
/// An implementation without `unsafe` could give a guest the hypervisor:
///
/// ```compile_fail,E0200
/// use mayfly_vm::platform::address::{Hva, Pfn};
/// use mayfly_vm::platform::sync::AtomicU64;
/// use mayfly_vm::stage2::{Level, Permissions};
/// use mayfly_vm::{HostFault, HostMemory, Resolved};
///
/// struct Everything;
///
/// impl HostMemory<Hva> for Everything {
///     fn resolve(&self, _: Hva, _: Permissions) -> Result<Resolved, HostFault> {
///         Ok(Resolved::memory(Pfn::new(0), Level::GIB1, true))
///     }
///
///     fn linear_map(&self) -> *const AtomicU64 {
///         core::ptr::null()
///     }
/// }
/// ```
pub unsafe trait HostMemory<B>: Send + Sync {
    /// The frame behind `backing`, brought in if it is not there; for a guest that needs `wanted`, which is one right:
    /// to read, to write, or to execute.
    ///
    /// Called by any vCPU, several at once, under the VM's SRCU.
    ///
    /// # Errors
    ///
    /// [`HostFault`] says why there is none.
    fn resolve(&self, backing: B, wanted: Permissions) -> Result<Resolved, HostFault>;

    /// The VM has just cleaned all of what is behind `backing`, a block or page of `level` from frame `first` on, as far as
    /// its [format](mayfly_stage2::Format) needs that: for VMs of this format it could be [`Resolved::clean`] from now on, as
    /// long as nobody writes it. A host that shares memory between VMs can note that. It is not told of what a VM leaves as
    /// it is, because it has it mapped already.
    ///
    /// Called inside the fault in which it was resolved, which may find that something has changed by now: by a vCPU, or by who
    /// has [blocks put back](crate::Vm::collapse_pages).
    fn cleaned(&self, backing: B, first: Pfn, level: Level) {
        let _ = (backing, first, level);
    }

    /// Which machine's frames these are: what [`Frames::linear_map`](mayfly_platform::frames::Frames::linear_map) says
    /// there. A VM is created with this memory on that machine alone, for on another one the same numbers are other
    /// frames, tables among them. Never changes.
    fn linear_map(&self) -> *const AtomicU64;
}

/// Where a page of host memory is, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its frame.
    pub pfn: Pfn,
    /// The largest block around it of which the same can be said: consecutive frames, at a multiple of the block's size
    /// in the host's addresses and in its frames, with the same rights, of the same type.
    pub level: Level,
    /// What the guest may do, as far as slot and log allow it too. It may always read. If what was wanted is not among
    /// it, the access fails ([`HostFault::ReadOnly`], [`HostFault::NotExecutable`]).
    ///
    /// A right that is missing is asked for when it is needed, so rights may be given by turns: a host that has blocks
    /// mapped without the right to execute (where a fetch by a block hangs the processor: CVE-2018-12207), and is asked
    /// to execute a page, says [`Level::PAGE`], and all rights; the core splits the block. He goes on saying pages of
    /// that block, for a block would take the place of the page again.
    pub allowed: Permissions,
    /// How the guest accesses it. Anything but [`MemoryType::WriteBack`] must not be kept in caches: the host
    /// accesses it in no other way, so nothing is cleaned for it or of it, and no mark is kept of what is written.
    /// What is a device's is not executed, whatever is allowed, and its pages are never replaced in place.
    pub memory: MemoryType,
    /// Whether all CPUs find the bytes of these frames as they are now, past the caches too, and fetch no others. Then
    /// nothing is cleaned to map them. A host may say so of what a VM [has cleaned](HostMemory::cleaned) since it was last
    /// written, if no guest is allowed to write it. It is not believed where instruction caches
    /// are [tagged by virtual address](crate::InstructionCaches::Virtual).
    pub clean: bool,
    /// Whether this call has announced a change of the page, and ended it, before it looked. Then what the VM knew before is
    /// outdated. It asks again at once, and need not find out by mapping in vain.
    pub changed: bool,
}

impl Resolved {
    /// Memory of the usual kind: cached, executable, `writable` or not.
    pub const fn memory(pfn: Pfn, level: Level, writable: bool) -> Self {
        let read = Permissions::READ.union(Permissions::EXECUTE);
        let allowed = if writable { Permissions::all() } else { read };
        Self { pfn, level, allowed, memory: MemoryType::WriteBack, clean: false, changed: false }
    }

    /// Registers of a device that the guest has to itself: read, written, not executed.
    pub const fn device(pfn: Pfn, level: Level) -> Self {
        let allowed = Permissions::READ.union(Permissions::WRITE);
        Self { pfn, level, allowed, memory: MemoryType::Device, clean: false, changed: false }
    }
}

/// Why there is no frame behind a place in host memory, or none for this access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostFault {
    /// The host has nothing there. Maps to `EFAULT`.
    #[error("the host has no memory behind this page")]
    NotMapped,
    /// The host allows no writes there. Maps to `EFAULT`.
    #[error("the host's memory behind this page is read-only")]
    ReadOnly,
    /// Nothing is executed there. Maps to `EFAULT`.
    #[error("the host's memory behind this page is not executable")]
    NotExecutable,
    /// The host has no frame left. Maps to `ENOMEM`.
    #[error("the host has no memory left for this page")]
    OutOfMemory,
    /// The memory there is broken, and what was in it is lost: the guest is told so as hardware does (x86: a machine
    /// check, Arm: a synchronous external abort). Maps to `EHWPOISON`.
    #[error("the host's memory behind this page is broken")]
    Poisoned,
    /// The page is the guest's alone, and was accessed as shared, or the other way round, as with `guest_memfd`: it is
    /// the caller's to make it what is wanted, or to refuse that. Maps to `EFAULT`, as `KVM_EXIT_MEMORY_FAULT`.
    #[error("the page was accessed as shared, and is private, or the other way round: convert it")]
    Private,
}
