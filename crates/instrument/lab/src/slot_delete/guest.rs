//! The guest: goes over its pages again and again, reads of each what it wrote there the last time, and writes anew.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use mayfly_machine::{Arena, CpuTlb, Hardware};
use mayfly_platform::address::{Gfn, Gpa, PAGE_SHIFT};
use mayfly_platform::sync::CacheLine;
use mayfly_record::nanoseconds;
use mayfly_stage2::{Ept, Permissions};
use mayfly_vm::{self as vm, Access, Base, Event, Requests, Translation};

use rustix::thread::Pid;

use super::refault::Refault;
use super::watch;
use crate::parking::Parking;

/// Accesses before a guest is idle for a moment, so that others have the host's processors, which are fewer.
const STAY: u32 = 64;

/// Bytes of an access.
const WORD: u64 = 8;

/// A guest, with the processor that it runs on.
#[derive(Debug)]
pub(crate) struct Guest {
    tlb: CpuTlb,
    arena: Arc<Arena>,
    /// Those that stay come first.
    pages: Vec<Page>,
    at: usize,
    /// Whether the page that it is at has been read.
    is_read: bool,
    pass: u64,
    last_step: Instant,
    progress: Arc<Progress>,
    data: [u8; WORD as usize],
    pub(crate) refault: Refault,
    pub(crate) reads: u64,
    /// Reads that gave something else than was written.
    pub(crate) mismatches: u64,
}

/// A page, and what is in its first word.
#[derive(Debug)]
struct Page {
    gfn: Gfn,
    written: u64,
}

/// What others see of a guest while it runs.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    line: CacheLine<Line>,
    pub(crate) parking: Parking,
    /// What the kernel calls its thread, which has said so before anything else.
    pub(crate) thread: OnceLock<Pid>,
}

#[derive(Debug, Default)]
struct Line {
    steps: AtomicU64,
    /// Nanoseconds.
    stall: AtomicU64,
    top: AtomicU64,
    /// Whether it has found all that stays on that root.
    is_whole: AtomicBool,
}

impl Progress {
    /// Accesses that it has made.
    pub(crate) fn steps(&self) -> u64 {
        self.line.steps.load(Ordering::Acquire)
    }

    /// The longest time without an access since this was last asked, in nanoseconds; a time counts when it is over.
    pub(crate) fn take_stall(&self) -> u64 {
        self.line.stall.swap(0, Ordering::Relaxed)
    }

    /// Whether it has gone over all that stays without a fault, on the root that it was last in the guest on.
    pub(crate) fn is_whole(&self) -> bool {
        self.line.is_whole.load(Ordering::Acquire)
    }

    /// The frame of the root that it was last in the guest on.
    pub(crate) fn top(&self) -> u64 {
        self.line.top.load(Ordering::Relaxed)
    }
}

/// Why a guest came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It was asked to, or has stayed long enough.
    Asked,
    /// It finds no translation for this.
    Fault(Access),
}

impl Guest {
    /// With a word in each page of a slot that stays and of one that does not, none of which anybody else writes to; they
    /// are zero so far.
    pub(crate) fn new(
        hardware: &Hardware,
        stay: impl IntoIterator<Item = Gfn>,
        go: impl IntoIterator<Item = Gfn>,
        progress: Arc<Progress>,
    ) -> Self {
        let page = |gfn| Page { gfn, written: 0 };
        let mut pages: Vec<Page> = stay.into_iter().map(page).collect();
        let stay = pages.len();
        pages.extend(go.into_iter().map(page));
        Self {
            refault: Refault::of(stay),
            pages,
            tlb: hardware.tlbs().cpu(),
            arena: Arc::clone(hardware.arena()),
            at: 0,
            is_read: false,
            pass: 1,
            last_step: Instant::now(),
            progress,
            data: [0; WORD as usize],
            reads: 0,
            mismatches: 0,
        }
    }

    /// Runs until it comes out, or is `asked` to.
    pub(crate) fn enter(&mut self, base: Base, asked: impl Fn() -> bool) -> Came {
        let Self { tlb, arena, pages, at, is_read, pass, last_step, progress, refault, .. } = self;
        let Line { steps, stall, top, is_whole } = &*progress.line;
        // It was not kept from stepping while it was idle.
        *last_step = watch::woken().map_or(*last_step, |woken| woken.max(*last_step));
        let mut guest = tlb.enter_guest(base.top, base.vmid);
        top.store(base.top.get(), Ordering::Relaxed);
        refault.enter(base.top);
        is_whole.store(refault.is_over(), Ordering::Release);
        for _ in 0..STAY {
            if asked() {
                return Came::Asked;
            }
            guest.poll();
            let page = &mut pages[*at];
            let write = *is_read;
            let needed = if write { Permissions::WRITE } else { Permissions::READ };
            let gpa = Gpa::new(page.gfn.get() << PAGE_SHIFT);
            let Ok(found) = guest.translate::<Ept>(arena, page.gfn, needed) else {
                refault.fault(*at);
                return Came::Fault(Access::data(gpa, WORD, write));
            };
            let word = arena.word(found.hpa(gpa));
            if write {
                page.written = *pass;
                word.store(page.written, Ordering::Release);
                refault.reach(*at);
                is_whole.store(refault.is_over(), Ordering::Release);
                *at = (*at + 1) % pages.len();
                *pass += u64::from(*at == 0);
            } else {
                self.reads += 1;
                self.mismatches += u64::from(word.load(Ordering::Acquire) != page.written);
            }
            *is_read = !write;
            end_gap(last_step, stall);
            // Release: who finds the step finds what was done before it.
            steps.store(steps.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        Came::Asked
    }

    /// Stays out for a while if it is to. Returns whether it was.
    pub(crate) fn park(&mut self) -> bool {
        let has_parked = self.progress.parking.park();
        if has_parked {
            // It was not kept from stepping by anything but this.
            self.last_step = Instant::now();
        }
        has_parked
    }

    /// Leaves out the page that it faulted on, this time: nothing is there. Its access is answered all the same, as a
    /// device's is: a guest that comes upon eight such pages one after the other is not kept from its memory for as long.
    pub(crate) fn skip(&mut self) {
        end_gap(&mut self.last_step, &self.progress.line.stall);
        self.is_read = false;
        self.at = (self.at + 1) % self.pages.len();
        self.pass += u64::from(self.at == 0);
    }
}

/// An access is over that began after the one at `last_step`. If `stall` has been shorter, it is that now.
fn end_gap(last_step: &mut Instant, stall: &AtomicU64) {
    let now = Instant::now();
    let gap = nanoseconds(now - *last_step);
    *last_step = now;
    if gap > stall.load(Ordering::Relaxed) {
        stall.fetch_max(gap, Ordering::Relaxed);
    }
}

impl vm::Guest<Ept> for Guest {
    fn enter(&mut self, translation: Translation<Ept>, requests: &Requests) -> Event {
        assert_eq!(translation.cpu(), self.tlb.number(), "the guest was told another CPU");
        // SAFETY: each vCPU has a CPU of the machine to itself, which is the one that was named.
        let base = unsafe { translation.load() };
        match Guest::enter(self, base, || requests.any()) {
            Came::Asked => Event::Request,
            Came::Fault(access) => Event::Access(access),
        }
    }

    fn cpu(&self) -> u32 {
        self.tlb.number()
    }

    fn forget(&mut self, gfn: Gfn) {
        self.tlb.forget(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        &mut self.data
    }

    fn answered(&mut self) {}
}
