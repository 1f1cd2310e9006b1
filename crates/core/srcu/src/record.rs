//! What a grace period sees of a reader: a record each, on cache lines of its own, and the list of all records.

use core::cell::{Cell, UnsafeCell};
use core::ptr::{NonNull, null_mut};

use mayfly_platform::Context;
use mayfly_platform::sync::{AtomicBool, AtomicU64, CacheLine, Ordering};

/// Low bits of [`ReaderLine::section`]: how deeply the reader is nested.
pub(crate) const NESTING: u64 = 0xffff;
/// One more section left.
pub(crate) const SECTION: u64 = NESTING + 1;

/// What a reader shows of itself.
pub(crate) struct Record {
    /// Written by the reader alone, but for `awaited`.
    pub(crate) reader: CacheLine<ReaderLine>,
    /// Read and written under the domain's gate.
    gated: CacheLine<Gated>,
}

pub(crate) struct ReaderLine {
    /// The number of sections left so far (48 bits), and the nesting of the present one (16 bits; 0: outside).
    pub(crate) section: AtomicU64,
    /// A thread sleeps until this reader leaves. Set by waiters, which is rare; read at each leave.
    pub(crate) awaited: AtomicBool,
    /// What entered the present section, where that is known and cannot change: see `contexts`. Synchronises nothing.
    pub(crate) entered_by: core::sync::atomic::AtomicU64,
    /// What a fenced reader locks for its fence, where a locked instruction is one. Nobody reads it.
    pub(crate) locked: core::sync::atomic::AtomicU64,
}

struct Gated {
    sampled: Cell<Option<Sampled>>,
    /// The records before and behind this one.
    links: UnsafeCell<(*mut Record, *mut Record)>,
}

/// The last section that a grace period found the reader inside.
#[derive(Clone, Copy)]
pub(crate) struct Sampled {
    pub(crate) section: u64,
    /// The first grace period that found it there.
    pub(crate) period: u64,
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            reader: CacheLine(ReaderLine {
                section: AtomicU64::new(0),
                awaited: AtomicBool::new(false),
                entered_by: core::sync::atomic::AtomicU64::new(0),
                locked: core::sync::atomic::AtomicU64::new(0),
            }),
            gated: CacheLine(Gated {
                sampled: Cell::new(None),
                links: UnsafeCell::new((null_mut(), null_mut())),
            }),
        }
    }

    /// The section that the reader is inside, if it is inside one.
    ///
    /// Acquire, pairing with the release in `Reader::leave`: what a section that is over did, happened before.
    pub(crate) fn inside(&self) -> Option<u64> {
        let word = self.reader.section.load(Ordering::Acquire);
        (word & NESTING != 0).then_some(word / SECTION)
    }

    /// The first grace period that found the reader inside `section`, if one did.
    pub(crate) fn sampled_in(&self, section: u64) -> Option<u64> {
        let sampled = self.gated.sampled.get().filter(|sampled| sampled.section == section);
        sampled.map(|sampled| sampled.period)
    }

    /// Grace period `sampled.period` is the first that finds the reader inside.
    pub(crate) fn sample(&self, sampled: Sampled) {
        self.gated.sampled.set(Some(sampled));
    }

    /// Whether the section that the reader is inside is known to be `context`'s.
    pub(crate) fn entered_by(&self, context: Context) -> bool {
        let entered_by = self.reader.entered_by.load(core::sync::atomic::Ordering::Relaxed);
        entered_by == context.get().get()
    }
}

/// The records of a domain's readers, under the gate: a list, which a reader enters when it is registered and leaves
/// when it is dropped. So a grace period looks at the readers that there are.
pub(crate) struct Records {
    first: *mut Record,
}

// SAFETY: the records of the list are valid on all threads, and what is not atomic in them is used under the gate.
unsafe impl Send for Records {}

impl Records {
    pub(crate) fn new() -> Self {
        Self { first: null_mut() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            // SAFETY: null, or a record of the list, which stays one while `self` is borrowed.
            let record = unsafe { at.as_ref() }?;
            // SAFETY: links are written by a thread that has the list exclusively.
            at = unsafe { *record.gated.links.get() }.1;
            Some(record)
        })
    }

    /// # Safety
    ///
    /// `record` is on no list, and valid until it is removed from this one.
    pub(crate) unsafe fn add(&mut self, record: NonNull<Record>) {
        // SAFETY: `record` and the first of the list are valid, and their links ours while the list is.
        unsafe {
            *record.as_ref().gated.links.get() = (null_mut(), self.first);
            if let Some(first) = self.first.as_ref() {
                (*first.gated.links.get()).0 = record.as_ptr();
            }
        }
        self.first = record.as_ptr();
    }

    /// # Safety
    ///
    /// `record` is on this list.
    pub(crate) unsafe fn remove(&mut self, record: NonNull<Record>) {
        // SAFETY: `record` and its neighbours are on the list, so valid, and their links ours while the list is.
        unsafe {
            let (before, behind) = *record.as_ref().gated.links.get();
            match before.as_ref() {
                Some(before) => (*before.gated.links.get()).1 = behind,
                None => self.first = behind,
            }
            if let Some(behind) = behind.as_ref() {
                (*behind.gated.links.get()).0 = before;
            }
        }
    }
}
