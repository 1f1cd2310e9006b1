//! Where a vCPU runs, and whose turn it is on a CPU that several vCPUs share.
//!
//! A vCPU that is to run on a shared CPU waits for its turn in [`Guest::enter`](mayfly_vm::Guest::enter), before it
//! loads anything; turns come in the order in which they are asked for. It is outside the guest meanwhile, so no
//! invalidation waits for it. The vCPU that has the turn is in a guest, out of which an interrupt or the end of its slice
//! brings it, or on its way into one. Each vCPU that comes to have the turn looks at what an interrupt was meant for.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use mayfly_memslot::Gfn;
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::Vmid;

use crate::lock::lock;
use crate::tlb::CpuCounts;
use crate::{CpuTlb, Tlbs};

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

/// A vCPU's turn, until this is dropped.
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
