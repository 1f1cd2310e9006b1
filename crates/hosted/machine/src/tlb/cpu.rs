//! One CPU's TLB.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::tlb::{Scope, Vmid};
use mayfly_stage2::{Format, VcpuMark};

use super::Tlbs;
use super::cache::Cache;
use super::counts::{CpuCounts, count_own};
use super::mailbox::{CAPACITY, Request};
use super::rigour::{Rigour, may_walk_outside};
use super::shared::Shared;
use crate::Arena;
use crate::lock::lock;
use crate::recorder::next_number;
use crate::walk::glimpse;

/// How many guest frames a CPU walks to again when it is in no guest.
pub(super) const WALKED: usize = 8;

/// The TLB of one CPU, which is a thread, or a vCPU that moves between threads. It takes part in invalidations from
/// [`Tlbs::cpu`] on until it is dropped.
#[derive(Debug)]
pub struct CpuTlb {
    pub(super) tlbs: Arc<Tlbs>,
    pub(super) shared: Arc<Shared>,
    pub(super) cache: Cache,
    /// Those that were taken and are being done.
    pub(super) requests: Vec<Request>,
    /// How many posts have been taken, modulo 2^32.
    pub(super) seen: u32,
    /// Which one it is.
    pub(super) number: u32,
    /// Its walks find what was written before this ([`Late`](super::late::Late)).
    pub(super) walks_from: u64,
    /// To be forgotten at the next entry to the guest.
    pub(super) stale: Option<Gfn>,
    /// Which vCPU's own tables have a part in what is remembered under a VMID.
    pub(super) owners: HashMap<Vmid, VcpuMark>,
    /// What was walked to last.
    pub(super) walked: [Gfn; WALKED],
    pub(super) walks: usize,
}

impl Tlbs {
    /// A new CPU's TLB. It has the lowest number that no other has.
    ///
    /// # Panics
    ///
    /// If there are [`CPUS`](super::CPUS) already.
    pub fn cpu(self: &Arc<Self>) -> CpuTlb {
        CpuTlb::new(Arc::clone(self), self.add())
    }
}

impl CpuTlb {
    fn new(tlbs: Arc<Tlbs>, shared: Arc<Shared>) -> Self {
        Self {
            tlbs,
            shared,
            cache: Cache::new(),
            requests: Vec::with_capacity(CAPACITY),
            seen: 0,
            number: next_number(),
            walks_from: 0,
            stale: None,
            owners: HashMap::new(),
            walked: [Gfn::new(0); WALKED],
            walks: 0,
        }
    }

    /// Its CPU's number, below [`Platform::cpus`](mayfly_platform::Platform::cpus).
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// Has the page `gfn` forgotten when the CPU next goes into the guest, under the VMID of then: what
    /// [`Guest::forget`](mayfly_vm::Guest::forget) asks for.
    pub fn forget(&mut self, gfn: Gfn) {
        self.stale = Some(gfn);
    }

    /// Walks, speculatively, from the root that the register still names, to where guests have been.
    pub(super) fn walk_outside<F: Format>(&mut self, arena: &Arena) {
        if !may_walk_outside::<F>() || !self.tlbs.rigour().contains(Rigour::WALKS_OUTSIDE) {
            return;
        }
        // Held meanwhile: who vacates it waits until the walks are done.
        let shared = Arc::clone(&self.shared);
        let register = lock(&shared.register);
        let Some((top, vmid)) = register.named else { return };
        shared.mailbox.walks(vmid);
        self.forget_posted(vmid);
        for gfn in self.walked {
            if let Some(found) = glimpse::<F>(arena, top, gfn) {
                self.cache.insert(vmid, gfn, found.level, found.leaf);
                count_own(&shared.counts.walks_outside);
            }
        }
    }

    /// Forgets, outside the guest, what was asked; the CPU is going to walk under `vmid`.
    pub(super) fn forget_posted(&mut self, vmid: Vmid) {
        if self.shared.mailbox.has_mail(self.seen) {
            self.take_posted(vmid);
            self.shared.mailbox.leave(self.seen, &*self.tlbs.platform);
        }
    }

    pub(super) fn take_posted(&mut self, vmid: Vmid) {
        let rigour = self.tlbs.rigour();
        let Self { tlbs, shared, cache, requests, seen, owners, .. } = self;
        let (posted, everything) = shared.mailbox.take(requests, &*tlbs.platform);
        for request in requests.drain(..) {
            match &request.scope {
                Scope::Range(span) => {
                    if rigour.contains(Rigour::FOLLOWS_HINTS) {
                        cache.forget_addresses(request.vmid, span);
                    } else {
                        cache.forget_range(request.vmid, &span.gfns);
                    }
                    count_own(&shared.counts.ranges_forgotten);
                }
                Scope::All => {
                    cache.forget_vmid(request.vmid);
                    owners.remove(&request.vmid);
                    count_own(&shared.counts.vmids_forgotten);
                }
            }
        }
        if everything {
            cache.forget_everything();
            owners.clear();
            shared.mailbox.holds_only(vmid);
            count_own(&shared.counts.everything_forgotten);
        }
        *seen = posted;
    }

    /// Takes the interrupt that is pending, if one is.
    pub fn take_interrupt(&self) {
        if self.shared.interrupted.load(Ordering::Relaxed) {
            // Acquire, pairing with the release in `interrupt`.
            self.shared.interrupted.swap(false, Ordering::Acquire);
        }
    }

    /// The first frame of the root that its translation base register names, and the VMID there.
    pub fn named(&self) -> Option<(Pfn, Vmid)> {
        self.shared.named()
    }

    /// What this CPU did.
    pub fn counts(&self) -> CpuCounts {
        self.shared.counts.read()
    }
}

impl Drop for CpuTlb {
    fn drop(&mut self) {
        self.tlbs.remove(&self.shared);
    }
}
