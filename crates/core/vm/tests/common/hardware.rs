//! The machine under the VMs of a test: a Linux process with frames, which may be refused, and TLBs, which only write
//! down what is asked of them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn, yield_now};

use mayfly_platform::address::Pfn;
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU32, AtomicU64};
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_platform::{Host, Layer, Op, Platform};

use super::interrupts::Interrupts;
use super::{Outcome, TestVcpu, frames, write};

type Hook = Box<dyn FnMut() + Send>;
type PointHook = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Hardware {
    host: Host,
    cpus: u32,
    live: AtomicUsize,
    /// Allocations of frames that are left before they are refused.
    left: AtomicUsize,
    refused: AtomicUsize,
    on_allocation: Mutex<Option<Hook>>,
    on_invalidation: Mutex<Option<Hook>>,
    on_interrupt: Mutex<Option<Hook>>,
    on_point: Mutex<Option<PointHook>>,
    interrupts: Interrupts,
    waits: AtomicUsize,
    waits_end_early: AtomicBool,
    tlb: Mutex<TlbLog>,
    charges: [AtomicUsize; OPS],
}

/// Tests that count allocations have room for what is written down in them.
const ROOM: usize = 1 << 12;

/// Numbers that [`number`] gives.
const OPS: usize = 8;

struct TlbLog {
    issued: Vec<(Vmid, Scope)>,
    completed: u64,
    rollovers: usize,
}

impl Hardware {
    pub(crate) fn new(cpus: u32) -> Self {
        let issued = Vec::with_capacity(ROOM);
        Self {
            host: Host::new(),
            cpus,
            live: AtomicUsize::new(0),
            left: AtomicUsize::new(usize::MAX),
            refused: AtomicUsize::new(0),
            on_allocation: Mutex::new(None),
            on_invalidation: Mutex::new(None),
            on_interrupt: Mutex::new(None),
            on_point: Mutex::new(None),
            interrupts: Interrupts::default(),
            waits: AtomicUsize::new(0),
            waits_end_early: AtomicBool::new(false),
            tlb: Mutex::new(TlbLog { issued, completed: 0, rollovers: 0 }),
            charges: Default::default(),
        }
    }

    /// Frames that are given out.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// Has allocations of frames refused after the next `count`.
    pub(crate) fn refuse_frames_after(&self, count: usize) {
        self.left.store(count, Ordering::SeqCst);
    }

    /// Has no allocation refused any more. Returns how many were.
    pub(crate) fn refuse_no_frames(&self) -> usize {
        self.left.store(usize::MAX, Ordering::SeqCst);
        self.refused.swap(0, Ordering::SeqCst)
    }

    /// Has `hook` called once, at the next allocation of a frame.
    pub(crate) fn at_next_allocation(&self, hook: impl FnMut() + Send + 'static) {
        *self.on_allocation.lock().unwrap() = Some(Box::new(hook));
    }

    /// Has `hook` called once, when the next invalidation is issued, before it takes effect.
    pub(crate) fn at_next_invalidation(&self, hook: impl FnMut() + Send + 'static) {
        *self.on_invalidation.lock().unwrap() = Some(Box::new(hook));
    }

    /// Has `hook` called once, when the next CPU is interrupted, before it is.
    pub(crate) fn at_next_interrupt(&self, hook: impl FnMut() + Send + 'static) {
        *self.on_interrupt.lock().unwrap() = Some(Box::new(hook));
    }

    /// Has `hook` called at each point where the embedder may take interrupts, unless that is in a call of it.
    pub(crate) fn at_each_point(&self, hook: impl Fn() + Send + Sync + 'static) {
        *self.on_point.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Calls none at points any more.
    pub(crate) fn at_no_point(&self) {
        *self.on_point.lock().unwrap() = None;
    }

    /// How often somebody has waited for a word to change, or is about to.
    pub(crate) fn waits(&self) -> usize {
        self.waits.load(Ordering::SeqCst)
    }

    /// Has waits without a deadline return at once, as any wait may.
    pub(crate) fn end_waits_early(&self) {
        self.waits_end_early.store(true, Ordering::SeqCst);
    }

    pub(crate) fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// The invalidations that were issued since this was last asked; all of them are complete.
    pub(crate) fn take_invalidations(&self) -> Vec<(Vmid, Scope)> {
        let mut tlb = self.tlb.lock().unwrap();
        let completed = std::mem::take(&mut tlb.completed);
        assert_eq!(completed, tlb.issued.len() as u64, "the last one is complete");
        std::mem::replace(&mut tlb.issued, Vec::with_capacity(ROOM))
    }

    /// How much was charged of `op`, whatever amount it names here.
    pub(crate) fn charged(&self, op: Op) -> usize {
        self.charges[number(op)].load(Ordering::SeqCst)
    }

    /// Has `vcpu` write at `gpa` on a thread of its own, and returns when it has, or when its fault was refused.
    pub(crate) fn try_write(&self, mut vcpu: TestVcpu, gpa: u64) -> JoinHandle<Outcome> {
        let refused = self.charged(Op::FaultRefused);
        let writing = spawn(move || write(&mut vcpu, gpa, &[1]));
        while !writing.is_finished() && self.charged(Op::FaultRefused) == refused {
            yield_now();
        }
        writing
    }

    /// How often everything under all VMIDs was forgotten.
    pub(crate) fn rollovers(&self) -> usize {
        self.tlb.lock().unwrap().rollovers
    }
}

thread_local! {
    static IN_POINT: Cell<bool> = const { Cell::new(false) };
}

/// Where `op` is counted; what no test asks for, together.
fn number(op: Op) -> usize {
    match op {
        Op::EntriesWritten(_) => 0,
        Op::TablesFreed(_) => 1,
        Op::TablesKept(_) => 2,
        Op::FaultRefused => 3,
        Op::FrozenWait => 4,
        Op::InstructionsForgotten(_) => 5,
        Op::AllInstructionsForgotten => 6,
        _ => OPS - 1,
    }
}

fn call_once(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().unwrap().take();
    if let Some(mut hook) = hook {
        hook();
    }
}

// SAFETY: passes the calls that promise something on to the host.
unsafe impl Layer for Hardware {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.host
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        self.waits.fetch_add(1, Ordering::SeqCst);
        if self.waits_end_early.load(Ordering::SeqCst) {
            yield_now();
        } else {
            self.host.wait(word, expected);
        }
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn interrupt(&self, cpu: u32) {
        call_once(&self.on_interrupt);
        self.interrupts.send(cpu);
    }

    fn preemption_point(&self) {
        let hook = self.on_point.lock().unwrap().clone();
        let inside = IN_POINT.replace(true);
        if let (Some(hook), false) = (hook, inside) {
            hook();
        }
        IN_POINT.set(inside);
    }

    fn charge(&self, op: Op) {
        let amount = match op {
            Op::EntriesWritten(amount) | Op::TablesFreed(amount) | Op::TablesKept(amount) => amount,
            _ => 1,
        };
        self.charges[number(op)].fetch_add(amount as usize, Ordering::SeqCst);
    }
}

// SAFETY: a frame of the one arena is one's at a time, of words that stay.
unsafe impl Frames for Hardware {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        call_once(&self.on_allocation);
        if self.left.load(Ordering::SeqCst) != usize::MAX {
            let take = |left: usize| left.checked_sub(1);
            let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
            if taken.is_err() {
                self.refused.fetch_add(1, Ordering::SeqCst);
                return Err(OutOfMemory);
            }
        }
        self.live.fetch_add(1 << order, Ordering::SeqCst);
        frames::arena().allocate(order)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        // SAFETY: as the caller promises.
        unsafe { frames::arena().free(first, order) };
        self.live.fetch_sub(1 << order, Ordering::SeqCst);
    }

    fn linear_map(&self) -> *const AtomicU64 {
        frames::arena().linear_map()
    }
}

// SAFETY: what walks the tables remembers nothing.
unsafe impl Tlb for Hardware {
    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        call_once(&self.on_invalidation);
        let mut tlb = self.tlb.lock().unwrap();
        tlb.issued.push((vmid, scope));
        TlbToken(tlb.issued.len() as u64)
    }

    fn complete(&self, token: TlbToken) {
        let mut tlb = self.tlb.lock().unwrap();
        tlb.completed = tlb.completed.max(token.0);
    }

    fn invalidate_all_vmids(&self) {
        self.tlb.lock().unwrap().rollovers += 1;
    }
}
