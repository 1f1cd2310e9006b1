//! The world that the core runs in here: frames, TLBs, caches, threads to wait by, and the time.

use alloc::sync::Arc;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64 as Word, Ordering};

use mayfly_arm64::cache::Caches;
use mayfly_arm64::gic::{self, Gic};
use mayfly_arm64::spin::SpinLock;
use mayfly_arm64::tlb::{self, EmptyRoot};
use mayfly_arm64::virtual_gic::Shape;
use mayfly_arm64::{cpu, timer};
use mayfly_hwtrace::{Barrier, Event};
use mayfly_hypervisor::frames::FramePool;
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};
use mayfly_vm::platform::cache::{Cache, CacheCapabilities};
use mayfly_vm::platform::frames::Frames;
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::platform::observe::{Observer, Step, Ticket};
use mayfly_vm::platform::sync::{AtomicU32, AtomicU64};
use mayfly_vm::platform::time::Instant;
use mayfly_vm::platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_vm::platform::{Context, Identity, Platform, ReaderBarrier};

use super::once::Once;
use super::{console, cpus, masked, threads, trace};

/// What is known of the machine once it is prepared.
#[derive(Clone, Copy)]
struct Facts {
    gic: Gic,
    vtcr: u64,
    empty: EmptyRoot,
    uart_interrupt: Option<u32>,
    interface: Shape,
}

static FACTS: Once<Facts> = Once::new();
static FRAMES: SpinLock<Option<FramePool<'static>>> = SpinLock::new(None);
/// Invalidations that guests' TLBs were told.
static INVALIDATIONS: Word = Word::new(0);

/// Says what the machine's frames are. Once.
pub(super) fn set_frames(pool: FramePool<'static>) {
    *FRAMES.lock() = Some(pool);
}

/// Says what else is known of the machine. Once, before another processor starts.
pub(super) fn set_facts(gic: Gic, vtcr: u64, empty: EmptyRoot, uart_interrupt: Option<u32>) {
    FACTS.set(Facts { gic, vtcr, empty, uart_interrupt, interface: Shape::read() });
}

fn facts() -> &'static Facts {
    FACTS.get().expect("the machine is prepared")
}

pub(super) fn gic() -> Gic {
    facts().gic
}

pub(super) fn vtcr() -> u64 {
    facts().vtcr
}

/// What processors have of the virtual interface.
pub(super) fn virtual_interface() -> Shape {
    facts().interface
}

pub(super) fn empty_root() -> EmptyRoot {
    facts().empty
}

/// Frames that are free.
pub(super) fn free_frames() -> u64 {
    FRAMES.lock().as_ref().map_or(0, FramePool::free_frames)
}

/// `1 << order` frames of zeroes.
pub(super) fn allocate_frames(order: u32) -> Option<Pfn> {
    const PART: u64 = 2;
    let first = FRAMES.lock().as_mut()?.allocate(order as usize)?;
    let end = first + (1 << order);
    for part in (first..end).step_by(PART as usize) {
        let start = core::ptr::with_exposed_provenance_mut::<u8>((part * PAGE_SIZE) as usize);
        let bytes = (end - part).min(PART) * PAGE_SIZE;
        // SAFETY: the frames are nobody's but the caller's, and mapped.
        unsafe { start.write_bytes(0, bytes as usize) };
        // The large ones are a guest's memory, whose VM waits.
        if order > threads::STACK_ORDER && threads::has_begun() {
            threads::preemption_point();
        } else {
            look();
        }
    }
    trace::note(|| Event::Give { frame: first, order });
    Some(Pfn::new(first))
}

/// Takes frames back.
///
/// # Safety
///
/// They were given for that order, and nobody uses them any more.
pub(super) unsafe fn free_frames_of(first: Pfn, order: u32) {
    // Before somebody else can be given them.
    trace::note(|| Event::Free { frame: first.get(), order });
    let taken = FRAMES.lock().as_mut().is_some_and(|pool| pool.free(first.get(), order as usize));
    debug_assert!(taken, "frames are given back as they were given");
}

/// As [`take_interrupts`], and nothing on a processor that is not prepared yet.
pub(super) fn look() {
    if threads::has_begun() {
        take_interrupts();
        threads::remember_slice();
    }
}

/// Sees to the interrupts that are pending on this processor.
pub(super) fn take_interrupts() {
    masked::look();
    cpus::obey();
    while let Some(number) = gic::acknowledge() {
        handle(number);
    }
}

/// Sees to one interrupt that was acknowledged, and that no guest is to see.
pub(super) fn handle(number: u32) {
    match number {
        timer::EL2_TIMER => threads::tick(),
        // It has done what it was sent for: the processor has come out.
        gic::KICK | gic::MAINTENANCE => {}
        // Of the guest that this thread is out of, or of one that was here before: it comes again when the registers of the
        // guest that it is due for are back.
        timer::VIRTUAL_TIMER => {
            threads::leave();
        }
        number if facts().uart_interrupt == Some(number) => {
            console::take_typed();
        }
        _ => {}
    }
    gic::deactivate(number);
}

/// The world. Every value of it is the same.
#[derive(Debug)]
pub(super) struct World(());

impl World {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(()))
    }
}

// SAFETY: readers execute a fence; the number of a thread is no other's.
unsafe impl Platform for World {
    fn observer(&self) -> Option<&dyn Observer> {
        trace::is_on().then_some(self)
    }

    fn identity(&self) -> Identity {
        Identity::new(1)
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        threads::wait(word, expected, u64::MAX);
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        let deadline =
            if deadline == Instant::NEVER { u64::MAX } else { timer::ticks_at(deadline) };
        threads::wait(word, expected, deadline);
    }

    fn wake(&self, word: &AtomicU32) {
        threads::wake(word);
    }

    fn cpus(&self) -> u32 {
        // Not those that are up: it never changes.
        cpus::MAX as u32
    }

    fn interrupt(&self, cpu: u32) {
        if cpu as usize != cpu::number() {
            cpus::kick(cpu as usize);
        }
    }

    fn now(&self) -> Instant {
        timer::instant(timer::ticks())
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Fenced
    }

    fn heavy_barrier(&self) {
        unreachable!("readers are fenced");
    }

    fn context(&self) -> Option<Context> {
        NonZeroU64::new(threads::number()).map(Context::new)
    }

    fn relax(&self) {
        threads::preemption_point();
    }

    fn preemption_point(&self) {
        threads::preemption_point();
    }
}

impl Observer for World {
    fn begin(&self) -> Ticket {
        Ticket(trace::ticket())
    }

    fn end(&self, begun: Ticket, step: Step) {
        trace::step(begun.0, &step);
    }
}

/// Has TLBs forget something: behind a barrier, and completely.
fn invalidate(id: u64, work: impl FnOnce(), event: impl FnOnce() -> Event) {
    trace::note(|| Event::Barrier { kind: Barrier::Walks });
    trace::of(work, event);
    trace::note(|| Event::Sync { id });
}

// SAFETY: frames are given to one owner at a time, zeroed, and mapped where their number says.
unsafe impl Frames for World {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        allocate_frames(order).ok_or(OutOfMemory)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        // SAFETY: the caller's promise.
        unsafe { free_frames_of(first, order) };
    }

    fn linear_map(&self) -> *const AtomicU64 {
        core::ptr::with_exposed_provenance(0)
    }
}

// SAFETY: invalidations are broadcast to all processors, and complete when `issue` returns.
unsafe impl Tlb for World {
    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        let id = INVALIDATIONS.fetch_add(1, Ordering::Relaxed);
        invalidate(
            id,
            || empty_root().invalidate(vmid, &scope),
            || trace::invalidation(id, vmid, &scope),
        );
        TlbToken(0)
    }

    fn complete(&self, _token: TlbToken) {}

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        cpus::vacate(cpu as usize, vmid);
    }

    fn invalidate_all_vmids(&self) {
        let id = INVALIDATIONS.fetch_add(1, Ordering::Relaxed);
        invalidate(id, tlb::invalidate_all_vmids, || Event::TlbiEverything { id });
    }
}

/// Does `work` to frames, and looks for interrupts in between. Nobody else has the processor meanwhile: the core may hold an
/// entry frozen.
fn in_parts(first: Pfn, count: u64, work: impl Fn(Pfn, u64)) {
    const PART: u64 = 8;
    let end = first.get() + count;
    for part in (first.get()..end).step_by(PART as usize) {
        work(Pfn::new(part), (end - part).min(PART));
        look();
    }
}

impl Cache for World {
    fn capabilities(&self) -> CacheCapabilities {
        Caches.capabilities()
    }

    fn clean(&self, first: Pfn, count: u64) {
        let work = || in_parts(first, count, |first, count| Caches.clean(first, count));
        trace::of(work, || Event::Clean { frame: first.get(), count });
    }

    fn clean_invalidate(&self, first: Pfn, count: u64) {
        let work = || in_parts(first, count, |first, count| Caches.clean_invalidate(first, count));
        trace::of(work, || Event::Flush { frame: first.get(), count });
    }

    fn invalidate_instructions(&self, first: Pfn, count: u64) {
        // In one part: of as many lines as a part has, all are invalidated at once.
        let work = || Caches.invalidate_instructions(first, count);
        trace::of(work, || Event::Fetch { frame: first.get(), count });
    }

    fn invalidate_all_instructions(&self) {
        Caches.invalidate_all_instructions();
    }
}
