//! The guest: goes over the VM's pages again and again, writes to its share what the phase asks for, and checks all.

use std::marker::PhantomData;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mayfly_machine::walk::Cause;
use mayfly_machine::{Arena, CpuTlb, Hardware};
use mayfly_memslot::Gfn;
use mayfly_platform::address::{Gpa, PAGE_SHIFT};
use mayfly_platform::sync::CacheLine;
use mayfly_record::nanoseconds;
use mayfly_stage2::{Format, Permissions};
use mayfly_vm::{self as vm, Access, Event, Requests, Translation};
use rustix::thread::Pid;

use super::pattern::{self, Phase, Use, used_for};
use super::window::Windows;
use crate::work::cpu_here;

/// Accesses before a guest is idle for a moment, so that others have the host's processors, which are fewer.
const STAY: u32 = 512;

/// Bytes of an access.
const WORD: u64 = 8;

/// Which guest it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) vm: u32,
    pub(super) vcpu: usize,
    /// vCPUs of the VM, each of which writes to a part of its own.
    pub(super) vcpus: usize,
    pub(super) pages: usize,
    /// For how long it is idle.
    pub(super) idle: Duration,
    /// Nanoseconds that a look at the thread's clock takes.
    pub(super) clock: u64,
}

/// What others see of a guest while it runs.
#[derive(Debug, Default)]
pub(super) struct Progress {
    line: CacheLine<Line>,
    /// What the kernel calls its thread.
    pub(super) thread: OnceLock<Pid>,
}

#[derive(Debug, Default)]
struct Line {
    sweeps: AtomicU64,
    phase: AtomicU64,
}

impl Progress {
    /// How often it has gone over all pages.
    pub(super) fn sweeps(&self) -> u64 {
        self.line.sweeps.load(Ordering::Acquire)
    }

    /// The phase that its pages are in.
    pub(super) fn phase(&self) -> u64 {
        self.line.phase.load(Ordering::Acquire)
    }
}

/// What a guest has to tell in the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Since the rounds have begun, as all here but what is read.
    pub(super) faults: u64,
    /// Nanoseconds of CPU time from coming out for them until going on, breaks among them.
    pub(super) faults_cpu: u64,
    /// Nanoseconds from each write to what may only be read until the guest goes on.
    pub(super) writes: Vec<u64>,
    pub(super) reads: u64,
    /// Reads that gave something else than was written, or something older than was read before.
    pub(super) mismatches: u64,
    /// Faults in a window: the entry was empty, or did not allow to read.
    pub(super) slow: u64,
    /// Faults in a window: a write to what may only be read, which causes a break.
    pub(super) breaking: u64,
    /// Faults in a window: the entry was frozen.
    pub(super) frozen: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.faults += other.faults;
        self.faults_cpu += other.faults_cpu;
        self.writes.extend(other.writes);
        self.reads += other.reads;
        self.mismatches += other.mismatches;
        self.slow += other.slow;
        self.breaking += other.breaking;
        self.frozen += other.frozen;
    }
}

/// A guest, with the processor that it runs on, which translates in format `F`.
#[derive(Debug)]
pub(super) struct Guest<F> {
    tlb: CpuTlb,
    arena: Arc<Arena>,
    state: State,
    rests: bool,
    /// What its thread had had of its processor when it came out for a fault that counts.
    faulted_at: Option<u64>,
    /// When it came out for a write to what may only be read.
    writes_since: Option<Instant>,
    data: [u8; WORD as usize],
    format: PhantomData<F>,
}

#[derive(Debug)]
struct State {
    seat: Seat,
    windows: Arc<Windows>,
    progress: Arc<Progress>,
    /// The phase that pages are to be in.
    wanted: Arc<AtomicU64>,
    /// The phase of this sweep.
    phase: Phase,
    /// Of each page what it holds, or, if it is another's, what was last read there.
    held: Vec<u64>,
    at: usize,
    /// Whether the page that it is at has been read.
    is_read: bool,
    tally: Tally,
}

impl<F> Guest<F> {
    /// With pages that are all zeroes.
    pub(super) fn new(
        hardware: &Hardware,
        seat: Seat,
        windows: Arc<Windows>,
        progress: Arc<Progress>,
        wanted: Arc<AtomicU64>,
    ) -> Self {
        let state = State {
            held: vec![0; seat.pages],
            seat,
            windows,
            progress,
            wanted,
            phase: Phase(0),
            at: 0,
            is_read: false,
            tally: Tally::default(),
        };
        Self {
            tlb: hardware.tlbs().cpu(),
            arena: Arc::clone(hardware.arena()),
            state,
            rests: false,
            faulted_at: None,
            writes_since: None,
            data: [0; WORD as usize],
            format: PhantomData,
        }
    }

    pub(super) fn into_tally(self) -> Tally {
        self.state.tally
    }
}

impl State {
    fn is_own(&self, page: usize) -> bool {
        page * self.seat.vcpus / self.seat.pages == self.seat.vcpu
    }

    /// What is to be written to the page that it is at, if anything is.
    fn next(&self) -> Option<u64> {
        let (page, vm) = (self.at, self.seat.vm);
        let next = match used_for(page) {
            Use::Hot => pattern::hot(pattern::stamp(self.held[page]) + 1, vm, page),
            Use::Patterned if self.phase != Phase(0) => self.phase.value(vm, page),
            Use::Patterned | Use::Zero => return None,
        };
        (self.is_own(page) && next != self.held[page]).then_some(next)
    }

    fn step_on(&mut self) {
        self.is_read = false;
        self.at += 1;
        if self.at < self.seat.pages {
            return;
        }
        self.at = 0;
        let Line { sweeps, phase } = &*self.progress.line;
        // Release: who finds the sweep finds what it wrote.
        phase.store(self.phase.0, Ordering::Release);
        sweeps.store(sweeps.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.phase = Phase(self.wanted.load(Ordering::Acquire));
    }

    /// Takes what was read from the page that it is at.
    fn check(&mut self, found: u64) {
        let is_own = self.is_own(self.at);
        let held = &mut self.held[self.at];
        let is_right = found == *held || !is_own && found > *held;
        self.tally.reads += 1;
        self.tally.mismatches += u64::from(!is_right);
        if !is_own {
            *held = found;
        }
        self.is_read = true;
    }

    /// Whether the rounds have begun: what faults there are before map memory for the first time.
    fn counts(&self) -> bool {
        self.wanted.load(Ordering::Acquire) > 0
    }

    /// Notes a fault on the page that it is at, to which change `open` was under way before the access.
    fn fault(&mut self, open: u64, cause: Cause, write: bool) {
        let Tally { faults, slow, breaking, frozen, .. } = &mut self.tally;
        *faults += 1;
        let is_within = u64::from(self.windows.is_within(self.at, open));
        match cause {
            Cause::Frozen => *frozen += is_within,
            Cause::Permission if write => *breaking += is_within,
            Cause::Absent | Cause::Accessed | Cause::Permission | Cause::AddressSize => {
                *slow += is_within;
            }
        }
    }
}

impl<F: Format> Guest<F> {
    fn stay(&mut self, translation: Translation<F>, requests: &Requests) -> Event {
        let Self { tlb, arena, state, rests, faulted_at, writes_since, .. } = self;
        let mut guest = tlb.enter::<F>(arena, &translation);
        state.windows.set_top(guest.top());
        for _ in 0..STAY {
            if requests.any() {
                return Event::Request;
            }
            guest.poll();
            let (page, write) = (state.at, state.is_read);
            let next = state.next();
            if write && next.is_none() {
                state.step_on();
                continue;
            }
            let gpa = Gpa::new((page as u64) << PAGE_SHIFT);
            let needed = if write { Permissions::WRITE } else { Permissions::READ };
            let open = state.windows.at(page);
            let found = match guest.translate::<F>(arena, gpa.gfn(), needed) {
                Ok(found) => found,
                Err(fault) => {
                    if state.counts() {
                        if write && fault.cause == Cause::Permission {
                            *writes_since = Some(Instant::now());
                        }
                        state.fault(open, fault.cause, write);
                        *faulted_at = Some(cpu_here());
                    }
                    let denied = fault.cause == Cause::Permission;
                    return Event::Access(Access { denied, ..Access::data(gpa, WORD, write) });
                }
            };
            let word = arena.word(found.hpa(gpa));
            match next {
                Some(next) if write => {
                    word.store(next, Ordering::Release);
                    state.held[page] = next;
                    state.step_on();
                }
                _ => state.check(word.load(Ordering::Acquire)),
            }
        }
        *rests = true;
        Event::Request
    }
}

impl<F: Format> vm::Guest<F> for Guest<F> {
    fn enter(&mut self, translation: Translation<F>, requests: &Requests) -> Event {
        if let Some(since) = self.faulted_at.take() {
            self.state.tally.faults_cpu +=
                (cpu_here() - since).saturating_sub(self.state.seat.clock);
        }
        if let Some(since) = self.writes_since.take() {
            self.state.tally.writes.push(nanoseconds(since.elapsed()));
        }
        if std::mem::take(&mut self.rests) && !self.state.seat.idle.is_zero() {
            sleep(self.state.seat.idle);
        }
        self.stay(translation, requests)
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
