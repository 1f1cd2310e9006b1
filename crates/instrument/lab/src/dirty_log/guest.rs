//! The guest: writes to its pages, one after the other, again and again, each time a number that is larger by one.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use mayfly_machine::{Arena, CpuTlb, Hardware};
use mayfly_platform::address::{Gfn, Gpa, PAGE_SHIFT};
use mayfly_platform::sync::CacheLine;
use mayfly_stage2::{Ept, Permissions};
use mayfly_vm::{self as vm, Access, Base, Event, Requests, Translation};

use rustix::thread::Pid;

use super::stall::Begun;
use crate::parking::Parking;

/// Writes before a guest comes out for a moment, so that others have the host's processors, which are fewer.
const STAY: u32 = 64;

/// Bytes of an access.
const WORD: u64 = 8;

/// The event by which a guest comes out that has stayed long enough, or is over.
pub(super) const OUT: u64 = 0;

/// What the caller does to the log while a guest writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// There is no log, and what faults is not noted.
    Unlogged,
    /// Nothing: the log is on.
    Logged,
    /// It starts, harvests or clears.
    Called,
}

/// What the guests of a VM share.
#[derive(Debug)]
pub(crate) struct Course {
    phase: AtomicU8,
    is_over: AtomicBool,
    /// How long a vCPU is idle between two stays.
    idle: Duration,
}

impl Course {
    pub(super) fn new(idle: Duration) -> Self {
        Self { phase: AtomicU8::new(Phase::Unlogged as u8), is_over: AtomicBool::new(false), idle }
    }

    pub(super) fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Has every vCPU return.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u8
    }
}

/// What others see of a guest while it runs.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) parking: Parking,
    /// What the kernel calls its thread.
    pub(super) thread: OnceLock<Pid>,
    passes: CacheLine<AtomicU64>,
}

impl Progress {
    /// How often it has written to all of its pages.
    pub(super) fn passes(&self) -> u64 {
        self.passes.load(Ordering::Acquire)
    }
}

/// The stalls of a vCPU's writes, in nanoseconds, of those that faulted.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// While the log was on.
    pub(super) all: Vec<u64>,
    /// Of these, while the caller was in a call.
    pub(super) called: Vec<u64>,
}

/// A guest, with the processor that it runs on.
pub(crate) struct Guest {
    tlb: CpuTlb,
    arena: Arc<Arena>,
    pages: Vec<Gfn>,
    at: usize,
    value: u64,
    /// Writes until it comes out.
    left: u32,
    /// Since when it tries to make the write that it is at; and whether the caller was in a call then.
    faulted: Option<(Begun, bool)>,
    course: Arc<Course>,
    progress: Arc<Progress>,
    pub(super) stalls: Stalls,
    data: [u8; WORD as usize],
}

/// Why a guest came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It has stayed long enough, or is over.
    Out,
    /// Its write finds no translation that allows it.
    Fault(Gfn),
}

impl Guest {
    /// With a word in each of `pages`, which no other guest writes to.
    pub(super) fn new(
        hardware: &Hardware,
        pages: Vec<Gfn>,
        course: &Arc<Course>,
        progress: &Arc<Progress>,
    ) -> Self {
        Self {
            tlb: hardware.tlbs().cpu(),
            arena: Arc::clone(hardware.arena()),
            pages,
            at: 0,
            value: 1,
            left: STAY,
            faulted: None,
            course: Arc::clone(course),
            progress: Arc::clone(progress),
            stalls: Stalls::default(),
            data: [0; WORD as usize],
        }
    }

    /// Runs until it comes out.
    pub(crate) fn enter(&mut self, base: Base) -> Came {
        let Self { tlb, arena, pages, at, value, left, faulted, course, progress, stalls, .. } =
            self;
        let mut guest = tlb.enter_guest(base.top, base.vmid);
        while *left > 0 {
            guest.poll();
            let gfn = pages[*at];
            let gpa = Gpa::new(gfn.get() << PAGE_SHIFT);
            let Ok(found) = guest.translate::<Ept>(arena, gfn, Permissions::WRITE) else {
                if faulted.is_none() && !course.is(Phase::Unlogged) {
                    *faulted = Some((Begun::now(), course.is(Phase::Called)));
                }
                return Came::Fault(gfn);
            };
            arena.word(found.hpa(gpa)).store(*value, Ordering::Release);
            if let Some((begun, is_called)) = faulted.take() {
                let stall = begun.elapsed();
                stalls.all.push(stall);
                if is_called {
                    stalls.called.push(stall);
                }
            }
            *left -= 1;
            *at += 1;
            if *at == pages.len() {
                (*at, *value) = (0, *value + 1);
                progress.passes.store(*value - 1, Ordering::Release);
            }
        }
        Came::Out
    }

    /// Between two stays: is idle, or parked. Returns whether it goes on.
    pub(crate) fn rest(&mut self) -> bool {
        self.left = STAY;
        self.progress.parking.park();
        if self.course.is_over.load(Ordering::Relaxed) {
            return false;
        }
        if !self.course.idle.is_zero() {
            sleep(self.course.idle);
        }
        true
    }
}

impl vm::Guest<Ept> for Guest {
    fn enter(&mut self, translation: Translation<Ept>, _: &Requests) -> Event {
        assert_eq!(translation.cpu(), self.tlb.number(), "the guest was told another CPU");
        // SAFETY: each vCPU has a CPU of the machine to itself, which is the one that was named.
        let base = unsafe { translation.load() };
        match Guest::enter(self, base) {
            Came::Out => Event::Custom(OUT),
            Came::Fault(gfn) => {
                Event::Access(Access::data(Gpa::new(gfn.get() << PAGE_SHIFT), WORD, true))
            }
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
