//! The trace of what hardware sees of VMs' tables ([`mayfly_hwtrace`]), kept in frames of its own until it is printed.
//!
//! An event draws a ticket before its step. It draws a second ticket after the step, under the lock of the store. So
//! the store keeps events in the order of their second tickets. When the store is full, events are counted instead, and
//! the trace says how many are missing.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_hwtrace::{Event, Record};
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

use super::cpu;
use super::spin::SpinLock;

mod steps;

pub(crate) use steps::step;

/// Events, in frames of their own.
pub(crate) struct Store {
    first: Pfn,
    order: u32,
    count: usize,
    dropped: u64,
}

impl Store {
    /// An empty store in `1 << order` frames from `first` on.
    ///
    /// # Safety
    ///
    /// The frames are mapped, and the store's alone.
    pub(crate) unsafe fn new(first: Pfn, order: u32) -> Self {
        Self { first, order, count: 0, dropped: 0 }
    }

    /// Its frames: the first, and their order.
    pub(crate) fn frames(&self) -> (Pfn, u32) {
        (self.first, self.order)
    }

    /// How many events are missing.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The events that were kept.
    pub(crate) fn records(&self) -> &[Record] {
        // SAFETY: the first `count` were written, in frames that are this store's, aligned as pages are.
        unsafe { core::slice::from_raw_parts(self.start(), self.count) }
    }

    fn start(&self) -> *mut Record {
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
        unsafe { self.start().add(self.count).write(record) };
        self.count += 1;
    }
}

static STORE: SpinLock<Option<Store>> = SpinLock::new(None);
static IS_ON: AtomicBool = AtomicBool::new(false);
static TICKETS: AtomicU64 = AtomicU64::new(1);

/// Whether events are kept.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Draws a ticket.
pub(crate) fn ticket() -> u64 {
    TICKETS.fetch_add(1, Ordering::AcqRel)
}

/// Keeps an event that has happened since `begin` was drawn.
pub(crate) fn end(begin: u64, event: Event) {
    if let Some(store) = &mut *STORE.lock() {
        store.keep(begin, event);
    }
}

/// Does `work`, and keeps it as `event`.
pub(crate) fn of<T>(work: impl FnOnce() -> T, event: impl FnOnce() -> Event) -> T {
    if !is_on() {
        return work();
    }
    let begin = ticket();
    let outcome = work();
    end(begin, event());
    outcome
}

/// Keeps an event that happens now.
pub(crate) fn note(event: impl FnOnce() -> Event) {
    of(|| (), event);
}

/// Whether there is a store.
pub(crate) fn is_kept() -> bool {
    STORE.lock().is_some()
}

/// Keeps events from now on. No VM runs yet.
pub(crate) fn start(store: Store) {
    *STORE.lock() = Some(store);
    IS_ON.store(true, Ordering::Relaxed);
}

/// Keeps no more events. Returns those that were kept.
pub(crate) fn stop() -> Option<Store> {
    IS_ON.store(false, Ordering::Relaxed);
    STORE.lock().take()
}
