//! A machine's platform that records for each thread its root loads, what they waited for, and its slices of work on
//! tables.

use std::cell::RefCell;
use std::mem::take;
use std::sync::Arc;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use mayfly_machine::Hardware;
use mayfly_platform::address::Pfn;
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_platform::{Op, Platform, time};
use mayfly_record::nanoseconds;

use crate::idle::idle;
use crate::work::cpu_here;

/// The platform.
#[derive(Debug)]
pub(crate) struct Watch {
    hardware: Arc<Hardware>,
    /// How long a vCPU is idle between two stays in the guest.
    idle: Duration,
    /// Frames of tables, and the most there have been.
    tables: AtomicU64,
    most_tables: AtomicU64,
    /// What is measured is over.
    is_over: AtomicBool,
    /// Root loads that are made to wait.
    #[cfg(test)]
    hindered: AtomicU32,
}

/// What one thread did since it last [gave its books away](collect).
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) loads: Vec<RootLoad>,
    /// What each slice took of the processor, TLB invalidations apart, in nanoseconds.
    pub(crate) slices: Vec<u64>,
}

/// From seeing the request to running on the new root. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RootLoad {
    /// On the clock.
    pub(crate) wall: u64,
    /// Of that, asleep.
    pub(crate) wait: u64,
    /// Of the processor.
    pub(crate) cpu: u64,
    /// Entries into the platform's wait.
    pub(crate) waits: u64,
    /// Others that had, or waited for, what it had to wait for, when it came.
    pub(crate) ahead: u64,
}

#[derive(Default)]
struct Thread {
    load: Option<Loading>,
    /// When the slice began, on the thread's own clock.
    slice: Option<u64>,
    /// What TLB invalidations have had of it.
    invalidating: u64,
    /// When it was last idle.
    woken: Option<Instant>,
    log: Log,
}

struct Loading {
    start: Instant,
    cpu: u64,
    so_far: RootLoad,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// This thread's books, which begin anew.
pub(crate) fn collect() -> Log {
    THREAD.with_borrow_mut(|thread| take(&mut thread.log))
}

/// Says that `ahead` others had, or waited for, what this thread now waits for.
pub(crate) fn queued_behind(ahead: u64) {
    THREAD.with_borrow_mut(|thread| {
        if let Some(load) = &mut thread.load {
            load.so_far.ahead += ahead;
        }
    });
}

/// When this thread was last idle of its own accord.
pub(crate) fn woken() -> Option<Instant> {
    THREAD.with_borrow(|thread| thread.woken)
}

impl Watch {
    /// Of `vcpus` vCPUs, each on a thread of its own, which are [`idle`] between two stays in the guest.
    pub(crate) fn new(hardware: Arc<Hardware>, vcpus: u32) -> Self {
        Self {
            hardware,
            idle: idle(vcpus),
            tables: AtomicU64::new(0),
            most_tables: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            #[cfg(test)]
            hindered: AtomicU32::new(0),
        }
    }

    pub(crate) fn hardware(&self) -> &Arc<Hardware> {
        &self.hardware
    }

    /// Notes no slices from here on, on any thread: what ends a VM is not what is measured.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Has the next `count` root loads wait once, for nothing.
    #[cfg(test)]
    pub(crate) fn hinder(&self, count: u32) {
        self.hindered.store(count, Ordering::Relaxed);
    }

    /// The most frames that tables have had since this was last asked.
    pub(crate) fn take_most_tables(&self) -> u64 {
        self.most_tables.swap(self.tables.load(Ordering::Relaxed), Ordering::Relaxed)
    }

    /// Does `work`, which waits, and notes that it did if a root load waits for it.
    pub(crate) fn waiting(work: impl FnOnce()) {
        let is_loading = THREAD.with_borrow(|thread| thread.load.is_some());
        if !is_loading {
            return work();
        }
        let start = Instant::now();
        work();
        let waited = nanoseconds(start.elapsed());
        THREAD.with_borrow_mut(|thread| {
            if let Some(Loading { so_far, .. }) = &mut thread.load {
                so_far.wait += waited;
                so_far.waits += 1;
            }
        });
    }

    #[cfg(test)]
    fn hinder_load(&self) {
        let less = |count: u32| count.checked_sub(1);
        if self.hindered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            self.wait(&AtomicU32::new(0), 1);
        }
    }
}

fn begin_load() {
    let load = Loading { start: Instant::now(), cpu: cpu_here(), so_far: RootLoad::default() };
    THREAD.with_borrow_mut(|thread| thread.load = Some(load));
}

fn end_load() {
    THREAD.with_borrow_mut(|thread| {
        let Some(Loading { start, cpu, so_far }) = thread.load.take() else { return };
        let wall = nanoseconds(start.elapsed());
        let cpu = cpu_here().saturating_sub(cpu);
        // Whoever waits is behind somebody, even one that keeps no queue.
        let ahead = so_far.ahead.max(so_far.waits);
        thread.log.loads.push(RootLoad { wall, cpu, ahead, ..so_far });
    });
}

fn begin_slice() {
    THREAD.with_borrow_mut(|thread| {
        thread.invalidating = 0;
        thread.slice = Some(cpu_here());
    });
}

fn end_slice() {
    THREAD.with_borrow_mut(|thread| {
        if let Some(start) = thread.slice.take() {
            let spent = cpu_here().saturating_sub(start);
            thread.log.slices.push(spent.saturating_sub(thread.invalidating));
        }
    });
}

/// Does `work`, and takes it off the slice that it is in.
fn apart<T>(work: impl FnOnce() -> T) -> T {
    if THREAD.with_borrow(|thread| thread.slice.is_none()) {
        return work();
    }
    let start = cpu_here();
    let done = work();
    THREAD.with_borrow_mut(|thread| thread.invalidating += cpu_here().saturating_sub(start));
    done
}

// SAFETY: passes every call on to the hardware, which keeps the promises.
unsafe impl mayfly_platform::Layer for Watch {
    type Below = Hardware;

    fn below(&self) -> &Hardware {
        &self.hardware
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        Self::waiting(|| Platform::wait(&*self.hardware, word, expected));
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: time::Instant) {
        Self::waiting(|| Platform::wait_until(&*self.hardware, word, expected, deadline));
    }

    fn relax(&self) {
        if self.idle.is_zero() {
            return yield_now();
        }
        sleep(self.idle);
        THREAD.with_borrow_mut(|thread| thread.woken = Some(Instant::now()));
    }

    fn charge(&self, op: Op) {
        match op {
            Op::RootLoadBegin => {
                begin_load();
                #[cfg(test)]
                self.hinder_load();
            }
            Op::RootLoadEnd => end_load(),
            Op::SliceBegin if !self.is_over.load(Ordering::Relaxed) => begin_slice(),
            Op::SliceEnd => end_slice(),
            _ => {}
        }
        Platform::charge(&*self.hardware, op);
    }
}

// SAFETY: passes every call on to the hardware, which keeps the promises.
unsafe impl Frames for Watch {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        let first = self.hardware.allocate(order)?;
        let tables = self.tables.fetch_add(1 << order, Ordering::Relaxed) + (1 << order);
        self.most_tables.fetch_max(tables, Ordering::Relaxed);
        Ok(first)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        // SAFETY: as the caller promises.
        unsafe { self.hardware.free(first, order) };
        self.tables.fetch_sub(1 << order, Ordering::Relaxed);
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.hardware.linear_map()
    }
}

// SAFETY: passes all on to the machine's.
unsafe impl Tlb for Watch {
    fn tlbs(&self) -> usize {
        Tlb::tlbs(&*self.hardware)
    }

    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        apart(|| self.hardware.issue(vmid, scope))
    }

    fn complete(&self, token: TlbToken) {
        apart(|| self.hardware.complete(token));
    }

    fn invalidate_all_vmids(&self) {
        self.hardware.invalidate_all_vmids();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch::new(Arc::new(Hardware::new(64).unwrap()), 1)
    }

    #[test]
    fn waits_count_inside_a_root_load_alone() {
        let watch = watch();
        let wait = || watch.wait(&AtomicU32::new(0), 1);
        wait();
        watch.charge(Op::RootLoadBegin);
        wait();
        wait();
        watch.charge(Op::RootLoadEnd);
        wait();
        watch.charge(Op::RootLoadBegin);
        watch.charge(Op::RootLoadEnd);
        let loads = collect().loads;
        assert_eq!(loads.iter().map(|load| load.waits).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(loads.iter().map(|load| load.ahead).collect::<Vec<_>>(), [2, 0]);
        assert!(loads.iter().all(|load| load.wait <= load.wall));
        assert!(collect().loads.is_empty(), "given away");
    }

    #[test]
    fn a_queue_that_is_counted_counts_for_more_than_the_one_wait_in_it() {
        let watch = watch();
        queued_behind(9);
        watch.charge(Op::RootLoadBegin);
        queued_behind(5);
        watch.wait(&AtomicU32::new(0), 1);
        watch.charge(Op::RootLoadEnd);
        assert_eq!(collect().loads[0].ahead, 5);
    }

    #[test]
    fn the_most_frames_of_tables_are_those_of_the_time_since_they_were_asked_for() {
        let watch = watch();
        let frames = [(); 3].map(|()| watch.allocate(0).unwrap());
        for frame in &frames[1..] {
            // SAFETY: nobody knows of it.
            unsafe { watch.free(*frame, 0) };
        }
        assert_eq!((watch.take_most_tables(), watch.take_most_tables()), (3, 1));
    }

    #[test]
    fn slices_are_measured_on_the_threads_own_clock() {
        let watch = watch();
        watch.charge(Op::SliceEnd);
        watch.charge(Op::SliceBegin);
        let end = cpu_here() + 100_000;
        while cpu_here() < end {}
        watch.charge(Op::SliceEnd);
        let slices = collect().slices;
        assert!(slices.len() == 1 && slices[0] >= 100_000, "{slices:?}");
    }

    #[test]
    fn what_ends_the_vm_is_no_slice() {
        let watch = watch();
        let slice = || {
            watch.charge(Op::SliceBegin);
            watch.charge(Op::SliceEnd);
        };
        slice();
        watch.end();
        slice();
        assert_eq!(collect().slices.len(), 1);
    }
}
