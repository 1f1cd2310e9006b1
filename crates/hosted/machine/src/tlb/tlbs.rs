//! The TLBs of all CPUs: posting a request, and waiting until it is done. The protocol, and the names of the barriers,
//! are in the parent module.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use mayfly_hwtrace::{Barrier, Event, steps};
use mayfly_platform::Platform;
use mayfly_platform::address::Pfn;
use mayfly_platform::sync::CacheLine;
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};

use super::counts::{CpuCounts, TlbCells, TlbCounts, count};
use super::early::{Early, Posts};
use super::late::Late;
use super::mailbox::{Request, Waited};
use super::rigour::{LeftOut, Rigour};
use super::shared::Shared;
use crate::lock::lock;
use crate::processors::{CPUS, Processors};
use crate::recorder::Recorder;
use crate::walk::AddressSizes;

/// The TLBs of all CPUs.
pub struct Tlbs {
    pub(super) platform: Arc<dyn Platform>,
    /// Replaced as a whole, so that a thread that goes through it holds no lock.
    cpus: RwLock<Arc<[Arc<Shared>]>>,
    /// A [`Rigour`].
    rigour: AtomicU8,
    pub(super) late: Late,
    /// Where what is complete may be so too early.
    early: Option<Early>,
    pub(super) sizes: AddressSizes,
    /// A [`LeftOut`].
    left_out: AtomicU8,
    recorder: OnceLock<Arc<Recorder>>,
    issued: CacheLine<AtomicU64>,
    counts: CacheLine<TlbCells>,
    /// What CPUs did that are gone.
    gone: Mutex<CpuCounts>,
}

impl Tlbs {
    /// Without CPUs, and with all rigour. Waits are `platform`'s.
    pub fn new(platform: Arc<dyn Platform>) -> Self {
        Self::of(&Processors::default(), platform)
    }

    /// Of CPUs such as these.
    pub(crate) fn of(processors: &Processors, platform: Arc<dyn Platform>) -> Self {
        Self {
            platform,
            early: processors.completes_early.then(Early::default),
            sizes: processors.address_sizes(),
            cpus: RwLock::new(Arc::new([])),
            rigour: AtomicU8::new(Rigour::all().bits()),
            late: Late::new(),
            left_out: AtomicU8::new(LeftOut::Nothing as u8),
            recorder: OnceLock::new(),
            issued: CacheLine::default(),
            counts: CacheLine::default(),
            gone: Mutex::default(),
        }
    }

    /// Adds a CPU, and returns what it shares with others. It has the lowest number that no other has.
    ///
    /// # Panics
    ///
    /// If there are [`CPUS`] already.
    pub(super) fn add(&self) -> Arc<Shared> {
        let mut cpus = self.cpus.write().unwrap_or_else(PoisonError::into_inner);
        let is_free = |number: &u32| cpus.iter().all(|cpu| cpu.number != *number);
        let number = (0..CPUS).find(is_free).expect("more CPUs than the machine can have");
        let shared = Arc::new(Shared::new(number));
        *cpus = cpus.iter().chain([&shared]).cloned().collect();
        shared
    }

    /// Interrupts the CPU of that number, if it is there.
    pub fn interrupt(&self, cpu: u32) {
        if !self.leaves_out(LeftOut::Interrupt) {
            self.with(cpu, Shared::interrupt);
        }
    }

    fn with(&self, cpu: u32, what: impl FnOnce(&Shared)) {
        if let Some(cpu) = self.cpus().iter().find(|other| other.number == cpu) {
            what(cpu);
        }
    }

    /// Says how far they go in what the manuals allow them, from the next entry to the guest on.
    pub fn set_rigour(&self, rigour: Rigour) {
        self.rigour.store(rigour.bits(), Ordering::Relaxed);
    }

    /// Has something left out from now on, on all CPUs: a barrier, which [`Rigour::WALKS_LATE`] is there to find, for
    /// instance.
    pub fn leave_out(&self, what: LeftOut) {
        self.left_out.store(what as u8, Ordering::Relaxed);
    }

    /// Has what happens recorded.
    pub(crate) fn record(&self, recorder: Arc<Recorder>) {
        let _ = self.recorder.set(recorder);
    }

    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.get()?.wanted()
    }

    /// This thread has written an entry of a table, which was `old`, and walks may miss that.
    pub(crate) fn wrote(&self, table: Pfn, index: usize, old: u64) {
        self.late.wrote(table, index, old);
    }

    /// The root in frame `top` is about to be freed.
    ///
    /// # Panics
    ///
    /// If a guest is on it.
    pub(crate) fn root_gone(&self, top: Pfn) {
        let is_used = self.cpus().iter().any(|cpu| cpu.is_in_guest_on(top));
        assert!(!is_used, "a root is freed while a guest is on it");
        let names = |cpu: &&Arc<Shared>| cpu.named().is_some_and(|named| named.0 == top);
        count(&self.counts.named_when_gone, self.cpus().iter().filter(names).count() as u64);
    }

    /// No walk misses what was written to `1 << order` frames.
    pub(crate) fn renewed(&self, first: Pfn, order: u32) {
        let frames = first.get()..first.get() + (1 << order);
        frames.for_each(|frame| self.late.renewed(Pfn::new(frame)));
    }

    /// A barrier that orders walks, unless it is left out, made by `make`.
    pub(super) fn order_walks<T>(
        &self,
        which: LeftOut,
        make: impl FnOnce(&Late) -> T,
    ) -> Option<T> {
        if self.leaves_out(which) {
            return None;
        }
        let outcome = make(&self.late);
        if let Some(recorder) = self.recorder() {
            recorder.note(Event::Barrier { kind: Barrier::Walks });
        }
        Some(outcome)
    }

    pub(crate) fn leaves_out(&self, what: LeftOut) -> bool {
        self.left_out.load(Ordering::Relaxed) == what as u8
    }

    pub(crate) fn rigour(&self) -> Rigour {
        Rigour::from_bits_truncate(self.rigour.load(Ordering::Relaxed))
    }

    /// What was asked, of all CPUs together.
    pub fn counts(&self) -> TlbCounts {
        self.counts.read()
    }

    /// What the CPUs did, those that are gone among them. Each count is right; a CPU that is busy, or leaving, may show
    /// in some and not yet in others.
    pub fn cpu_counts(&self) -> CpuCounts {
        // Held meanwhile, so that no CPU goes between the two and is in neither.
        let gone = lock(&self.gone);
        let mut sum = *gone;
        for cpu in self.cpus().iter() {
            sum += cpu.counts.read();
        }
        sum
    }

    pub(super) fn remove(&self, shared: &Arc<Shared>) {
        let mut gone = lock(&self.gone);
        let mut cpus = self.cpus.write().unwrap_or_else(PoisonError::into_inner);
        *cpus = cpus.iter().filter(|cpu| !Arc::ptr_eq(cpu, shared)).cloned().collect();
        *gone += shared.counts.read();
    }

    fn cpus(&self) -> Arc<[Arc<Shared>]> {
        self.cpus.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn post(&self, request: Option<&Request>) -> TlbToken {
        self.order_walks(LeftOut::IssueBarrier, Late::issue);
        let begun = self.recorder().map(Recorder::begin);
        // [issue]
        fence(Ordering::SeqCst);
        let mut posts = 0;
        for cpu in self.cpus().iter() {
            if request.is_none_or(|request| cpu.mailbox.may_hold(request.vmid)) {
                cpu.mailbox.post(request.cloned(), &*self.platform);
                posts += 1;
            }
        }
        count(&self.counts.posts, posts);
        let token = TlbToken(self.issued.fetch_add(1, Ordering::Relaxed) + 1);
        if let Some((begun, recorder)) = begun.zip(self.recorder()) {
            recorder.end(begun, invalidation(request, token));
        }
        token
    }
}

// SAFETY: waits until every CPU in a guest has forgotten, and those outside do before they go in.
unsafe impl Tlb for Tlbs {
    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        match &scope {
            Scope::All => count(&self.counts.vmids, 1),
            Scope::Range(span) => {
                count(&self.counts.ranges, 1);
                count(&self.counts.addresses, span.count());
            }
        }
        self.post(Some(&Request { vmid, scope }))
    }

    fn complete(&self, token: TlbToken) {
        count(&self.counts.completions, 1);
        // [complete]
        fence(Ordering::SeqCst);
        let wait = |cpu: &Shared, posted| {
            let waited = cpu.mailbox.wait(posted, &*self.platform);
            count(&self.counts.waits, u64::from(waited != Waited::No));
            count(&self.counts.sleeps, u64::from(waited == Waited::Asleep));
        };
        let mut token = token;
        if let Some(early) = &self.early {
            let Some(before) = early.complete(Posts::new(token, &self.cpus())) else { return };
            before.of_cpus.iter().for_each(|(cpu, posted)| wait(cpu, *posted));
            token = before.token;
        } else {
            self.cpus().iter().for_each(|cpu| wait(cpu, cpu.mailbox.posted()));
        }
        if let Some(recorder) = self.recorder() {
            recorder.note(Event::Sync { id: token.0 });
        }
    }

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        count(&self.counts.vacated, 1);
        self.with(cpu, |cpu| cpu.vacate(vmid));
    }

    fn invalidate_all_vmids(&self) {
        count(&self.counts.everything, 1);
        let token = self.post(None);
        self.complete(token);
    }
}

/// What is recorded of an invalidation.
fn invalidation(request: Option<&Request>, token: TlbToken) -> Event {
    let id = token.0;
    let Some(Request { vmid, scope }) = request else { return Event::TlbiEverything { id } };
    steps::invalidation(id, *vmid, scope)
}

impl std::fmt::Debug for Tlbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tlbs").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
