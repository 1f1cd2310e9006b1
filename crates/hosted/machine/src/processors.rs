//! What processors a machine has, and whose turn it is on one that several vCPUs share.
//!
//! A vCPU that is to run on a shared CPU waits for its turn in [`Guest::enter`](mayfly_vm::Guest::enter), before it
//! loads anything; turns come in the order in which they are asked for. It is outside the guest meanwhile, so no
//! invalidation waits for it; and who has the turn is in a guest, out of which an interrupt or the end of his slice
//! brings him, or on his way into one. What an interrupt was meant for is looked at by each who comes to have the turn.

use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use mayfly_memslot::Gfn;
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::Vmid;

use crate::lock::lock;
use crate::tlb::CpuCounts;
use crate::walk::AddressSizes;
use crate::{CPUS, CpuTlb, Tlbs};

/// What processors a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors {
    /// So many, at most [`CPUS`], which vCPUs take in turns, and whose TLBs keep what each has left; or one for each
    /// [`Cpu`](crate::Cpu), which it has for itself.
    pub shared: Option<NonZeroU32>,
    /// After how many steps a guest comes out, and goes on on the next CPU where they are shared; or never, by itself.
    /// Where they are shared, who never comes out keeps others from running.
    pub slice: Option<u32>,
    /// How many bits VMIDs have.
    pub vmid_bits: u32,
    /// How many bits physical addresses have (Arm: `ID_AA64MMFR0_EL1.PARange`, and what `VTCR_EL2.PS` makes of it;
    /// x86: CPUID `8000_0008`). A walk that an entry leads further faults, and the guest comes out with
    /// [`ADDRESS_SIZE_FAULT`](crate::ADDRESS_SIZE_FAULT). The machine's frames begin at 30 bits.
    pub pa_bits: u32,
    /// How many bits guest physical addresses have (Arm: `VTCR_EL2.T0SZ`); or as many as the format's. Of what lies
    /// beyond, nothing is found, whatever the tables say.
    pub ipa_bits: Option<u32>,
    /// Whether an invalidation that is complete may have accesses under way all the same that were translated by what it
    /// invalidated, until another invalidation, whichever, is complete: errata 1286807 of Cortex-A76, 2441007 of
    /// Cortex-A55, 2441009 of Cortex-A510. The machine's platform makes the other one
    /// ([`LeftOut::Repeat`](crate::LeftOut::Repeat)).
    pub completes_early: bool,
    /// Whether who reads under SRCU executes a fence, as in Linux, also where the host could spare it one.
    pub fenced: bool,
}

impl Default for Processors {
    /// One for each, without errata; a VMID of 16 bits, as with Arm's `FEAT_VMID16`, and physical addresses of 52, the
    /// most that any of the formats has.
    fn default() -> Self {
        Self {
            shared: None,
            slice: Some(1 << 14),
            vmid_bits: 16,
            pa_bits: 52,
            ipa_bits: None,
            completes_early: false,
            fenced: false,
        }
    }
}

impl Processors {
    /// `cpus` of them, on which guests take short turns.
    ///
    /// # Panics
    ///
    /// If that is 0.
    pub fn shared(cpus: u32) -> Self {
        let shared = Some(NonZeroU32::new(cpus).expect("a machine has a CPU"));
        Self { shared, slice: Some(1 << 8), ..Self::default() }
    }

    /// How far their addresses go.
    pub(crate) fn address_sizes(&self) -> AddressSizes {
        let Self { pa_bits, ipa_bits, .. } = *self;
        AddressSizes { pa_bits, ipa_bits: ipa_bits.unwrap_or(AddressSizes::ANY.ipa_bits) }
    }

    /// How many there are at most.
    pub(crate) fn count(&self) -> u32 {
        self.shared.map_or(CPUS, NonZeroU32::get)
    }
}

/// CPUs that vCPUs share, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct SharedCpus(Box<[SharedCpu]>);

#[derive(Debug)]
struct SharedCpu {
    number: u32,
    turns: Mutex<Turns>,
    next: Condvar,
    tlb: Mutex<CpuTlb>,
}

#[derive(Debug, Default)]
struct Turns {
    /// How many were asked for.
    asked: u64,
    /// How many are over.
    over: u64,
}

impl SharedCpus {
    /// The first `count` of `tlbs`.
    pub(crate) fn new(tlbs: &Arc<Tlbs>, count: u32) -> Self {
        let cpus = (0..count).map(|_| tlbs.cpu()).map(|tlb| SharedCpu {
            number: tlb.number(),
            turns: Mutex::default(),
            next: Condvar::new(),
            tlb: Mutex::new(tlb),
        });
        Self(cpus.collect())
    }
}

/// Where a vCPU runs.
#[derive(Debug)]
pub(crate) enum Seat {
    /// On a CPU of its own.
    Own(Box<CpuTlb>),
    /// On one of those that are shared.
    Shared {
        cpus: Arc<SharedCpus>,
        /// The one that it is on, or will be.
        at: usize,
        /// To be forgotten there.
        stale: Option<Gfn>,
    },
}

impl Seat {
    /// On one of `cpus`; which one goes by `number`.
    pub(crate) fn among(cpus: Arc<SharedCpus>, number: usize) -> Self {
        let at = number % cpus.0.len();
        Self::Shared { cpus, at, stale: None }
    }

    /// The CPU's number.
    pub(crate) fn number(&self) -> u32 {
        match self {
            Self::Own(tlb) => tlb.number(),
            Self::Shared { cpus, at, .. } => cpus.0[*at].number,
        }
    }

    /// Has the CPU, when it is next taken, forget a page: [`CpuTlb::forget`].
    pub(crate) fn forget(&mut self, gfn: Gfn) {
        match self {
            Self::Own(tlb) => tlb.forget(gfn),
            Self::Shared { stale, .. } => *stale = Some(gfn),
        }
    }

    /// Takes the CPU, when it is this vCPU's turn.
    pub(crate) fn take(&mut self) -> Stay<'_> {
        match self {
            Self::Own(tlb) => Stay::Own(tlb),
            Self::Shared { cpus, at, stale } => {
                let cpu = &cpus.0[*at];
                let turn = cpu.turn();
                let mut tlb = lock(&cpu.tlb);
                if let Some(gfn) = stale.take() {
                    tlb.forget(gfn);
                }
                Stay::Shared { tlb, _turn: turn }
            }
        }
    }

    /// Goes on to another CPU, if there is one.
    pub(crate) fn move_on(&mut self) {
        if let Self::Shared { cpus, at, .. } = self {
            *at = (*at + 1) % cpus.0.len();
        }
    }

    /// What the CPU's TLB has done.
    pub(crate) fn counts(&self) -> CpuCounts {
        self.look(CpuTlb::counts)
    }

    /// What its base register names.
    pub(crate) fn named(&self) -> Option<(Pfn, Vmid)> {
        self.look(CpuTlb::named)
    }

    fn look<T>(&self, look: impl FnOnce(&CpuTlb) -> T) -> T {
        match self {
            Self::Own(tlb) => look(tlb),
            Self::Shared { cpus, at, .. } => look(&lock(&cpus.0[*at].tlb)),
        }
    }
}

impl SharedCpu {
    fn turn(&self) -> Turn<'_> {
        let mut turns = lock(&self.turns);
        let mine = turns.asked;
        turns.asked += 1;
        while turns.over != mine {
            turns = self.next.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }
}

/// Whose turn it is, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a SharedCpu);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.0.turns).over += 1;
        self.0.next.notify_all();
    }
}

/// A CPU that is a vCPU's until this is dropped.
#[derive(Debug)]
pub(crate) enum Stay<'a> {
    Own(&'a mut CpuTlb),
    /// The lock goes before the turn.
    Shared {
        tlb: MutexGuard<'a, CpuTlb>,
        _turn: Turn<'a>,
    },
}

impl Deref for Stay<'_> {
    type Target = CpuTlb;

    #[inline]
    fn deref(&self) -> &CpuTlb {
        match self {
            Self::Own(tlb) => tlb,
            Self::Shared { tlb, .. } => tlb,
        }
    }
}

impl DerefMut for Stay<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut CpuTlb {
        match self {
            Self::Own(tlb) => tlb,
            Self::Shared { tlb, .. } => tlb,
        }
    }
}
