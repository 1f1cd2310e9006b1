//! The guest side of a vCPU, as the embedder provides it.

use mayfly_memslot::{Gfn, Gpa, PAGE_SIZE};
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::Permissions;

use crate::Requests;
use crate::caches::CacheTraps;

/// The largest access to a device, in bytes.
pub const MMIO_MAX: usize = 8;

/// What executes a vCPU's instructions: real hardware behind a world switch, or a program on the software machine.
pub trait Guest {
    /// Runs the guest, its memory translated as `translation` says, until it needs the hypervisor, or `requests` has
    /// something for it. An access that the translation does not allow comes out, and is made again if the next entry
    /// does not find it answered.
    ///
    /// When this has returned, the CPU translates by [`Translation::top`] no more, not even speculatively: the tables
    /// below are freed then, as soon as nobody else is on them. Arm's CPUs do not walk EL1's translations at EL2; those
    /// that do by an erratum (1165522, 1319367, 1530923) have their base register changed to an empty root, and an `ISB`,
    /// before this returns or before what it names is given up.
    ///
    /// Entries of the tables that were stored before this was called, by this CPU or by one that it has heard from, are
    /// what the guest walks. On Arm that takes a `DSB ISH`, since a DMB orders no walk, and then the context
    /// synchronisation of the exception return (DDI 0487, "Ordering of memory accesses from translation table walks";
    /// `stage2`'s `litmus/S2+install+walk` and `S2+install+met`).
    ///
    /// A guest that does not look at `requests` while it runs is brought out by an interrupt
    /// ([`Platform::interrupt`](mayfly_platform::Platform::interrupt)). Then, each time before the guest goes on, this
    /// masks interrupts, looks at [`Requests::any`] a last time, and returns [`Event::Request`] if it is so; what is
    /// pending when the guest goes on brings it out at once. No barrier is needed beside.
    fn enter(&mut self, translation: Translation, requests: &Requests) -> Event;

    /// The CPU that [`Guest::enter`] is about to be called on: what
    /// [`Platform::interrupt`](mayfly_platform::Platform::interrupt) is told, below 2^29. If the vCPU comes to be on
    /// another one before `enter` has returned, `enter` returns without going on in the guest.
    ///
    /// The default is for worlds where nobody is interrupted.
    #[inline]
    fn cpu(&self) -> u32 {
        0
    }

    /// Says that the access that the guest came out with last, to page `gfn`, can be made again, but may fault again by
    /// what the CPU's TLB keeps: the next [`Guest::enter`] has its CPU, and no other, forget what it has of the page
    /// under the VMID that it is entered with, before the guest's next instruction.
    ///
    /// It is done there because the vCPU stays on its CPU there, and the translation base register names the root, from
    /// which Arm's `TLBI IPAS2E1` takes the VMID. (Arm: `TLBI IPAS2E1`, `DSB NSH`, `TLBI VMALLE1`, `DSB NSH`, `ISB`, as
    /// Linux does when it relaxes rights; RISC-V: `HFENCE.GVMA` of the page, then `HFENCE.VVMA`.) One that goes unheeded
    /// because the vCPU runs elsewhere later is said again there, when the guest faults.
    ///
    /// Never called in formats whose TLBs keep nothing of that kind ([`Format::KEEPS_FAULTING`],
    /// [`Format::KEEPS_ABSENT`]); a guest without a TLB has nothing to do.
    ///
    /// [`Format::KEEPS_FAULTING`]: mayfly_stage2::Format::KEEPS_FAULTING
    /// [`Format::KEEPS_ABSENT`]: mayfly_stage2::Format::KEEPS_ABSENT
    fn forget(&mut self, gfn: Gfn);

    /// The bytes of a device access that [`Guest::enter`] came out with: as many as it is long. Those that the guest
    /// writes; or the place for those that it reads. To look at them answers nothing.
    fn data(&mut self) -> &mut [u8];

    /// Says that the device access that [`Guest::enter`] came out with is answered: a device has what [`Guest::data`]
    /// said, or has put there what it read. The guest goes on behind it at the next entry; without this, it makes the
    /// access again.
    fn answered(&mut self);
}

/// Where a CPU finds the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The first frame of the root table.
    pub top: Pfn,
    /// What tags its translations in TLBs.
    pub vmid: Vmid,
    /// Which of its cache operations are to bring the guest out.
    pub traps: CacheTraps,
}

/// Why the guest came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It made an access that its translation does not allow: what should be there decides.
    Access(Access),
    /// It accesses an I/O port.
    Port(PortAccess),
    /// It does something to its caches, of what [`Translation::traps`] says. It has done it when it is next entered.
    Caches(CacheOp),
    /// It has nothing more to do.
    Halt,
    /// Something of the embedder's own, which says what by a number: a hypercall, a wait for an interrupt, the end of a
    /// time slice.
    Custom(u64),
    /// Something was asked of the vCPU, or it is time for something else.
    Request,
}

/// An access to guest physical memory that faulted, as far as it lies in the page that did.
///
/// One that lies in two pages, of which the second faults, is told of by what lies in the second: the core resolves one
/// page, and the access is made again as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its first byte in the page that faulted.
    pub gpa: Gpa,
    /// Its length in bytes from there on, at least 1; past the page's end where it leaves the page. Of no matter where
    /// there is memory.
    pub len: u64,
    /// Whether it writes.
    pub write: bool,
    /// What makes it, and how much is known of it.
    pub kind: AccessKind,
    /// Whether there is an entry, and it does not allow the access (a permission fault), rather than none, or one that
    /// was not accessed before. What a TLB may go on faulting by is forgotten only where it is so
    /// ([`Guest::forget`]). Formats in which an entry that faults is never kept have no use for it.
    pub denied: bool,
}

impl Access {
    /// A load or a store, described in full, where there is no entry.
    pub const fn data(gpa: Gpa, len: u64, write: bool) -> Self {
        Self { gpa, len, write, kind: AccessKind::Data, denied: false }
    }

    /// The right that it takes.
    pub const fn wanted(&self) -> Permissions {
        match self.kind {
            AccessKind::Fetch => Permissions::EXECUTE,
            _ if self.write => Permissions::WRITE,
            _ => Permissions::READ,
        }
    }

    /// Whether somebody else than memory can answer it: it is described, lies in its page, and is the guest's own.
    pub(crate) fn may_be_emulated(&self) -> bool {
        self.kind == AccessKind::Data && self.len <= PAGE_SIZE - self.gpa.page_offset()
    }
}

/// What makes an access, and how much is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// A load or a store that is described in full, by hardware (Arm: `ESR_EL2.ISS.ISV`) or by who has decoded the
    /// instruction (x86): where, how long, of which register. The one that a device may answer.
    Data,
    /// A load or a store of which not all of that is known. Arm: `ISV` clear, as for `STP` and `DC ZVA`. x86: an
    /// instruction that nobody has decoded. And, everywhere, what lies in the second page of an access that lies in
    /// two, which hardware may describe as if it began there.
    Opaque,
    /// An instruction fetch.
    Fetch,
    /// The walk of a table of the guest's own, for whatever. It may write: on Arm (`ESR_EL2.ISS.S1PTW`) it does where it
    /// is denied, to update the access flag or the dirty state, and reads otherwise; on Intel it does where EPT has
    /// accessed and dirty flags (SDM vol. 3, "Accessed and Dirty Flags for EPT"); on AMD always (APM vol. 2, "Nested
    /// Paging": guest page table walks are writes).
    Walk,
}

/// What a guest does to the caches of its vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheOp {
    /// It turns them on: from now on its accesses go through them. (Arm: its stage-1 MMU and data cache, which count as
    /// on when both are: `SCTLR_EL1.M` and `SCTLR_EL1.C`.)
    On,
    /// It turns them off.
    Off,
    /// It cleans or invalidates them by set and way: what the caches of this vCPU, and of no other, hold of no address
    /// in particular.
    SetWay,
}

/// An access to an I/O port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAccess {
    /// The port.
    pub port: u16,
    /// Its length in bytes: 1, 2 or 4.
    pub len: u8,
    /// Whether it writes.
    pub write: bool,
}
