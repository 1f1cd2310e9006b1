//! A trace of what hardware sees of VMs' tables ([`mayfly_hwtrace`]), kept in frames of its own until it is printed.
//!
//! An event draws a ticket before its step, and one after it, under the lock that it is kept under: so they are kept in the
//! order of their second tickets. When there is no room left, events are counted, and the trace says how many.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_arm64::cpu;
use mayfly_arm64::spin::SpinLock;
use mayfly_hwtrace::{Event, Options, Record};
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

use super::console::say;
use super::world;

mod steps;
mod vcpu;

pub(super) use steps::{invalidation, step};
pub(super) use vcpu::{enters, leaves};

/// Frames for 1 MiB of events, as an order.
const MIB_ORDER: u32 = 8;

/// Where events are kept.
struct Store {
    first: Pfn,
    order: u32,
    count: usize,
    dropped: u64,
}

impl Store {
    fn records(&self) -> *mut Record {
        with_exposed_provenance_mut((self.first.get() * PAGE_SIZE) as usize)
    }

    fn capacity(&self) -> usize {
        ((PAGE_SIZE << self.order) as usize) / size_of::<Record>()
    }

    fn keep(&mut self, begin: u64, event: Event) {
        if self.count == self.capacity() {
            self.dropped += 1;
            return;
        }
        let record = Record { begin, end: ticket(), cpu: cpu::number() as u32, event };
        // SAFETY: the frames are this store's, aligned as pages are, and have room for it.
        unsafe { self.records().add(self.count).write(record) };
        self.count += 1;
    }

    /// The one of that number, which is there.
    fn record(&self, number: usize) -> &Record {
        // SAFETY: the first `count` were written.
        unsafe { &*self.records().add(number) }
    }
}

static STORE: SpinLock<Option<Store>> = SpinLock::new(None);
static IS_ON: AtomicBool = AtomicBool::new(false);
static TICKETS: AtomicU64 = AtomicU64::new(1);

/// Whether events are kept.
#[inline]
pub(super) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// A ticket.
pub(super) fn ticket() -> u64 {
    TICKETS.fetch_add(1, Ordering::AcqRel)
}

/// An event has happened since `begin` was drawn.
pub(super) fn end(begin: u64, event: Event) {
    if let Some(store) = &mut *STORE.lock() {
        store.keep(begin, event);
    }
}

/// Does what an event is of, and keeps it.
pub(super) fn of<T>(work: impl FnOnce() -> T, event: impl FnOnce() -> Event) -> T {
    if !is_on() {
        return work();
    }
    let begin = ticket();
    let outcome = work();
    end(begin, event());
    outcome
}

/// An event happens.
pub(super) fn note(event: impl FnOnce() -> Event) {
    of(|| (), event);
}

/// Keeps events from now on, as many as have room in so many MiB. No VM is there yet.
pub(super) fn start(mib: u64) {
    if STORE.lock().is_some() {
        return say!("mayfly: a trace is kept already");
    }
    let order = MIB_ORDER + mib.next_power_of_two().trailing_zeros();
    let Some(first) = world::allocate_frames(order) else {
        return say!("mayfly: there is no memory for a trace of {mib} MiB");
    };
    *STORE.lock() = Some(Store { first, order, count: 0, dropped: 0 });
    IS_ON.store(true, Ordering::Relaxed);
}

/// Prints what was kept, and keeps no more.
pub(super) fn print() {
    let Some(store) = stop() else { return say!("mayfly: no trace is kept") };
    say!("mayfly: a trace of {} events, and {} are missing", store.count, store.dropped);
    say!("{}", Options { caches_maintained: true });
    for number in 0..store.count {
        say!("{}", store.record(number));
        super::threads::preemption_point();
    }
    if store.dropped > 0 {
        let (begin, end, event) = (ticket(), ticket(), Event::Dropped { count: store.dropped });
        say!("{}", Record { begin, end, cpu: 0, event });
    }
    say!("mayfly: the trace ends");
    forget(&store);
}

/// Keeps no more, and gives back what a trace has that was not printed.
pub(super) fn discard() {
    if let Some(store) = stop() {
        forget(&store);
    }
}

fn stop() -> Option<Store> {
    IS_ON.store(false, Ordering::Relaxed);
    STORE.lock().take()
}

fn forget(store: &Store) {
    // SAFETY: given for that order, and nobody else has the store.
    unsafe { world::free_frames_of(store.first, store.order) };
}
