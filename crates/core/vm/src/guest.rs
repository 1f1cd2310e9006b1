//! The guest side of a vCPU, which the embedder implements.

use core::fmt;
use core::marker::PhantomData;

use mayfly_memslot::{Gfn, Gpa, PAGE_SIZE};
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{Activated, Format, Permissions, VcpuMark, VmidTag};

use crate::Requests;
use crate::caches::CacheTraps;

/// The largest access to a device, in bytes.
pub const MMIO_MAX: usize = 8;

/// What executes a vCPU's instructions: real hardware behind a world switch, or a program on the software machine. It
/// walks tables of format `F`. A vCPU whose tables are of another one does not run it:
///
/// ```compile_fail,E0277
/// use mayfly_vm::stage2::Arm;
/// use mayfly_vm::testing::Program;
/// use mayfly_vm::{Exit, Vcpu, World};
///
/// fn run(vcpu: &mut Vcpu<impl World<Format = Arm<40>>>, guest: &mut Program) -> Exit {
///     vcpu.run(guest)
/// }
/// ```
///
/// (The same, where the formats agree:)
///
/// ```
/// use mayfly_vm::stage2::Ept;
/// use mayfly_vm::testing::Program;
/// use mayfly_vm::{Exit, Vcpu, World};
///
/// fn run(vcpu: &mut Vcpu<impl World<Format = Ept>>, guest: &mut Program) -> Exit {
///     vcpu.run(guest)
/// }
/// ```
pub trait Guest<F: Format> {
    /// Runs the guest, its memory translated as `translation` says, until it needs the hypervisor, or `requests` has
    /// something for it. An access that the translation does not allow comes out, and is made again if the next entry
    /// does not find it answered.
    ///
    /// When this has returned, no instruction on the CPU translates by what was loaded any more: the tables below are
    /// freed then, as soon as no other vCPU is on them. A CPU that goes on to walk from its base register speculatively
    /// is told before that ([`Tlb::vacate`](mayfly_platform::tlb::Tlb::vacate)).
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
    ///
    /// # The CPU and its VMID
    ///
    /// From before [`Translation::load`] until it returns, this stays on the CPU that [`Translation::cpu`] names, which
    /// is what [`Guest::cpu`] said, and no other vCPU is entered there meanwhile. What is loaded is good until this returns, and no longer: the VMID may be
    /// another when the guest is next entered, so the register is written each time. It may go on naming the root
    /// afterwards, also after the VM is gone, until another is loaded there. VMID 0 is never loaded: what it tags is
    /// the embedder's.
    ///
    /// - *Arm*: `VTTBR_EL2` holds the VMID and the root. For [`Base::flush`], with the register written and an `ISB`:
    ///   `TLBI VMALLE1`, `IC IALLU`, `DSB NSH`, `ISB`. `HCR_EL2.FB` is set, so that what the guest has its CPU forget
    ///   is forgotten on all, and nothing is to be flushed when a vCPU comes back to a CPU. (An instruction cache that
    ///   is tagged by VMID and ASID would mix up two vCPUs as a TLB does.)
    /// - *RISC-V*: so does `hgatp`. For [`Base::flush`], with it written: `HFENCE.VVMA x0, x0`, which reaches this hart
    ///   and the VMID in `hgatp` alone. The fences of [`Tlb`](mayfly_platform::tlb::Tlb) are made on each hart, by an
    ///   interrupt or the SBI; none is broadcast.
    /// - *AMD*: the VMID is the ASID in the VMCB, which tags combined translations: for [`Base::flush`], `TLB_CONTROL`
    ///   has the ASID flushed (3) at the next `VMRUN`. A machine has as many bits of VMID as fit below the ASIDs that
    ///   CPUID `8000_000A` says, and they are the same on all its CPUs.
    /// - *Intel*: EPTP names the root, and its table's address is the tag (EP4TA). For [`Base::flush`], `INVVPID` of
    ///   the vCPU's VPID: though each have one of its own, what the guest has invalidated on another CPU is here still.
    ///   `INVEPT` takes the EPTP and not the VMID, so an implementation of [`Tlb`](mayfly_platform::tlb::Tlb) keeps, by
    ///   VMID, the [`Base::top`] that was loaded with it last: one for the machine, written before the guest goes on.
    ///   No other root has the VMID before an invalidation of all under it has completed; and none has the frame, so an
    ///   EP4TA comes clean too.
    fn enter(&mut self, translation: Translation<'_, F>, requests: &Requests) -> Event;

    /// The CPU that [`Guest::enter`] is about to be called on, below
    /// [`Platform::cpus`](mayfly_platform::Platform::cpus) and 2^29: what
    /// [`Platform::interrupt`](mayfly_platform::Platform::interrupt) is told. If the vCPU comes to be on another one
    /// before `enter` has said that nothing takes it from there, `enter` returns without loading anything. So it does,
    /// or panics, where a guest around this one has named another CPU: `enter` compares [`Translation::cpu`].
    ///
    /// The default is for worlds of one CPU.
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
    /// Linux does when it relaxes rights; RISC-V: `HFENCE.GVMA` of the page, then `HFENCE.VVMA`.) One that goes
    /// unheeded because the vCPU runs elsewhere later is said again there, when the guest faults.
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

/// Where a CPU finds the guest's memory, in tables of format `F`.
///
/// The core makes it, for one entry. A copy is as good as what it is a copy of, and no copy outlives the entry; of what
/// the root is, nothing can be changed. ([`Translation::traps`] may be: that changes what the holder of this copy
/// does.) So no CPU can be sent anywhere else. It cannot be made of parts:
///
/// ```compile_fail,E0451
/// use mayfly_vm::Translation;
///
/// fn forged<F>(of: Translation<'_, F>, another: Translation<'_, F>) {
///     let forged = Translation { traps: another.traps, ..of };
/// }
/// ```
///
/// and cannot be kept:
///
/// ```compile_fail
/// use mayfly_vm::{Event, Requests, Translation};
///
/// struct Keeper<'a, F>(Option<Translation<'a, F>>);
///
/// impl<'a, F> Keeper<'a, F> {
///     fn enter(&mut self, translation: Translation<'_, F>, _: &Requests) {
///         self.0 = Some(translation);
///     }
/// }
/// ```
///
/// It stays on the thread, and so on the CPU, that it was made on:
///
/// ```compile_fail,E0277
/// use mayfly_vm::Translation;
///
/// fn elsewhere<F: Send + Sync>(translation: Translation<'_, F>, enter: impl Fn(Translation<'_, F>) + Sync) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| enter(translation));
///     });
/// }
/// ```
///
/// (It can be passed on, and loaded, as here:)
///
/// ```
/// use mayfly_vm::stage2::Format;
/// use mayfly_vm::{Base, Requests, Translation};
///
/// struct Loader(Option<Base>);
///
/// impl Loader {
///     fn enter<F: Format>(&mut self, translation: Translation<'_, F>, _: &Requests) {
///         // SAFETY: no CPU walks by it.
///         self.0 = Some(unsafe { translation.load() });
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Translation<'a, F> {
    /// Which of its cache operations are to bring the guest out.
    pub traps: CacheTraps,
    pub(crate) top: Pfn,
    pub(crate) tag: &'a VmidTag,
    pub(crate) vcpu: VcpuMark,
    pub(crate) cpu: u32,
    /// It is loaded where it was made, and walked in this format.
    pub(crate) walked: PhantomData<(*const (), F)>,
}

impl<F: Format> Translation<'_, F> {
    /// Whose own tables the CPU walks first (stage 1): no other vCPU's of the machine. Where a guest's invalidations
    /// reach its own CPU alone, a vCPU has another mark each time that it comes from another CPU.
    pub fn vcpu(&self) -> VcpuMark {
        self.vcpu
    }

    /// The CPU on which it may be loaded: what [`Guest::cpu`] said before this entry.
    #[inline]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Which TLBs the CPU has on which it may be loaded: [`Tlb::tlbs`](mayfly_platform::tlb::Tlb::tlbs).
    #[inline]
    pub fn tlbs(&self) -> usize {
        self.tag.tlbs()
    }

    /// What the CPU's translation base register is to hold. Called once in each [`Guest::enter`], where nothing takes
    /// the vCPU off the CPU until that returns, and before the CPU counts as one that is in a guest: where VMIDs have
    /// run out this invalidates all TLBs, or waits for the CPU that does, and an invalidation does not wait for this
    /// CPU meanwhile. Takes no lock otherwise, and allocates nothing.
    ///
    /// # Panics
    ///
    /// If [`Guest::cpu`] was not below [`Platform::cpus`](mayfly_platform::Platform::cpus).
    ///
    /// # Safety
    ///
    /// What [`Guest::enter`] says of the CPU holds: the caller is in it, on the CPU that [`Translation::cpu`] names, and
    /// stays there until it returns; no other vCPU is entered there meanwhile; and when it has returned, no instruction
    /// translates by what was loaded. The CPU is one of those whose TLBs [`Translation::tlbs`] names. Safe code may have
    /// any guest run by any vCPU, that of another machine included, and may say anything in [`Guest::cpu`], so the caller
    /// compares both. (A program that stands for a guest, without a CPU that walks or keeps
    /// translations, fulfils that if it reads nothing of the tables after it has returned.)
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    ///
    /// use mayfly_vm::stage2::Format;
    /// use mayfly_vm::{Base, Translation};
    ///
    /// fn load<F: Format>(translation: Translation<'_, F>) -> Base {
    ///     translation.load()
    /// }
    /// ```
    #[inline]
    pub unsafe fn load(&self) -> Base {
        // SAFETY: as the caller promises.
        let Activated { vmid, flush } = unsafe { self.tag.activate(self.cpu, self.vcpu) };
        Base { top: self.top, vmid, flush }
    }
}

impl<F: Format> fmt::Debug for Translation<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Translation")
            .field("format", &F::NAME)
            .field("top", &self.top)
            .field("tag", self.tag)
            .field("vcpu", &self.vcpu)
            .field("cpu", &self.cpu)
            .finish_non_exhaustive()
    }
}

/// What a translation base register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is to be flushed is not said again"]
pub struct Base {
    /// The first frame of the root table.
    pub top: Pfn,
    /// What tags its translations in TLBs.
    pub vmid: Vmid,
    /// Another vCPU of the VM was on this CPU, on this root, before: what it left in the TLB, made of its own tables,
    /// this one is not to find. Or this one was, and has been on another CPU since, where alone its guest may have had
    /// something forgotten ([`Format::GUEST_REACHES_ALL`](mayfly_stage2::Format::GUEST_REACHES_ALL)). [`Guest::enter`]
    /// has this CPU forget what it has under the VMID, before the guest's next instruction, and also if the guest does
    /// not go on after all.
    pub flush: bool,
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

    /// Whether anything other than memory can answer it: it is described, lies in its page, and is the guest's own.
    pub(crate) fn may_be_emulated(&self) -> bool {
        self.kind == AccessKind::Data && self.len <= PAGE_SIZE - self.gpa.page_offset()
    }
}

/// What makes an access, and how much is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// A load or a store that is described in full, by hardware (Arm: `ESR_EL2.ISS.ISV`) or by code that has decoded
    /// the instruction (x86): where, how long, of which register. The one that a device may answer.
    Data,
    /// A load or a store of which not all of that is known. Arm: `ISV` clear, as for `STP` and `DC ZVA`. x86: an
    /// instruction that no code has decoded. And, everywhere, what lies in the second page of an access that lies in
    /// two, which hardware may describe as if it began there.
    Opaque,
    /// An instruction fetch.
    Fetch,
    /// The walk of a table of the guest's own, for whatever. It may write: on Arm (`ESR_EL2.ISS.S1PTW`) it does where
    /// it is denied, to update the access flag or the dirty state, and reads otherwise; on Intel it does where EPT has
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
