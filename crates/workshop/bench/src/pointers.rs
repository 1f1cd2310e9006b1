//! Reads of pointers that a writer may replace at any time.
//!
//! [`COUNT`] pointers lead to a number each. In *independent* reads, the reader knows which pointer comes next. In
//! *dependent* reads, the number says which one does, so a read waits for the one before. Plain pointers have 16 bytes
//! each, as Mayfly's have with the domain that they belong to: where a pointer is found by its number takes as long.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use arc_swap::{ArcSwap, Cache};
use crossbeam_epoch::{Atomic, Guard};
use haphazard::HazardPointer;
use mayfly_srcu::{Rcu, RcuBox, Reader, Srcu};

/// How many pointers there are. Their numbers stay in the nearest cache.
pub const COUNT: usize = 64;

/// The number behind pointer `at`: the pointer that dependent reads go on with. They go through all of them.
fn next(at: usize) -> usize {
    (at + 7) % COUNT
}

/// `count` reads of one pointer after the other.
#[inline]
fn independent(count: u32, mut read: impl FnMut(usize) -> usize) {
    for at in 0..count as usize {
        black_box(read(at % COUNT));
    }
}

/// `count` reads, each of the pointer that the one before has named.
#[inline]
fn dependent(count: u32, mut read: impl FnMut(usize) -> usize) {
    let mut at = 0;
    for _ in 0..count {
        at = read(at) % COUNT;
    }
    black_box(at);
}

/// Has `read` read `count` times, in one way or the other.
#[inline]
fn reads(count: u32, is_dependent: bool, read: impl FnMut(usize) -> usize) {
    if is_dependent { dependent(count, read) } else { independent(count, read) }
}

/// Mayfly's.
pub struct Mayfly(Vec<Rcu<usize>>);

impl Mayfly {
    /// Pointers of `domain`.
    ///
    /// # Panics
    ///
    /// If there is no memory for them.
    pub fn new(domain: &Srcu) -> Self {
        let boxed = |at| RcuBox::try_new(next(at)).expect("a word is to be had");
        Self((0..COUNT).map(|at| Rcu::new(domain, boxed(at))).collect())
    }

    /// `count` reads in one section.
    #[inline(never)]
    pub fn reads(&self, reader: &Reader, is_dependent: bool, count: u32) {
        let section = reader.lock();
        reads(count, is_dependent, |at| *self.0[at].load(&section));
    }

    /// `count` sections with `EACH` reads each.
    #[inline(never)]
    pub fn exits<const EACH: usize>(&self, reader: &Reader, count: u32) {
        for _ in 0..count {
            let section = reader.lock();
            for at in 0..EACH {
                black_box(*self.0[at].load(&section));
            }
        }
    }
}

/// A plain atomic pointer, and to whom it belongs.
struct Owned {
    pointer: AtomicPtr<usize>,
    owner: usize,
}

/// Plain atomic pointers: nothing keeps a value from being freed while it is read.
pub struct Plain(Vec<Owned>);

impl Plain {
    /// Pointers to numbers that are freed with this. They belong to owner 1.
    #[expect(clippy::new_without_default, reason = "as the others are made")]
    pub fn new() -> Self {
        let owned =
            |at| Owned { pointer: AtomicPtr::new(Box::into_raw(Box::new(next(at)))), owner: 1 };
        Self((0..COUNT).map(owned).collect())
    }

    /// `count` reads.
    #[inline(never)]
    pub fn reads(&self, is_dependent: bool, count: u32) {
        reads(count, is_dependent, |at| {
            // SAFETY: freed when this is dropped.
            unsafe { *self.0[at].pointer.load(Ordering::Acquire) }
        });
    }

    /// `count` reads by `reader`, which must be the owner of each pointer that it reads: what Mayfly's reads check, and
    /// no more.
    ///
    /// # Panics
    ///
    /// If it is not.
    #[inline(never)]
    pub fn owned_reads(&self, reader: usize, is_dependent: bool, count: u32) {
        let reader = black_box(reader);
        reads(count, is_dependent, |at| {
            let Owned { pointer, owner } = &self.0[at];
            assert!(*owner == reader, "the section is of another domain");
            // SAFETY: as above.
            unsafe { *pointer.load(Ordering::Acquire) }
        });
    }

    /// `count` reads protected by seize's `guard`.
    #[inline(never)]
    pub fn seize_reads(&self, guard: &impl seize::Guard, is_dependent: bool, count: u32) {
        reads(count, is_dependent, |at| {
            // SAFETY: as above.
            unsafe { *guard.protect(&self.0[at].pointer, Ordering::Acquire) }
        });
    }

    /// `count` sections of seize's collector with `EACH` reads each.
    #[inline(never)]
    pub fn seize_exits<const EACH: usize>(&self, collector: &seize::Collector, count: u32) {
        for _ in 0..count {
            let guard = collector.enter();
            for at in 0..EACH {
                let pointer = &self.0[at].pointer;
                // SAFETY: as above.
                black_box(unsafe { *seize::Guard::protect(&guard, pointer, Ordering::Acquire) });
            }
        }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        for Owned { pointer, .. } in &mut self.0 {
            // SAFETY: made of a box, once.
            drop(unsafe { Box::from_raw(*pointer.get_mut()) });
        }
    }
}

/// crossbeam's.
pub struct Crossbeam(Vec<Atomic<usize>>);

impl Crossbeam {
    /// Pointers that last as long as the process.
    #[expect(clippy::new_without_default, reason = "as the others are made")]
    pub fn new() -> Self {
        Self((0..COUNT).map(|at| Atomic::new(next(at))).collect())
    }

    /// `count` reads under `guard`.
    #[inline(never)]
    pub fn reads(&self, guard: &Guard, is_dependent: bool, count: u32) {
        reads(count, is_dependent, |at| {
            // SAFETY: never replaced, nor freed.
            unsafe { *self.0[at].load(Ordering::Acquire, guard).deref() }
        });
    }
}

/// arc-swap's, each read through a cache of its reader's.
pub struct Cached(Vec<Cache<Arc<ArcSwap<usize>>, Arc<usize>>>);

impl Cached {
    /// Pointers and their caches.
    #[expect(clippy::new_without_default, reason = "as the others are made")]
    pub fn new() -> Self {
        let cache = |at| Cache::new(Arc::new(ArcSwap::from_pointee(next(at))));
        Self((0..COUNT).map(cache).collect())
    }

    /// `count` reads.
    #[inline(never)]
    pub fn reads(&mut self, is_dependent: bool, count: u32) {
        reads(count, is_dependent, |at| **self.0[at].load());
    }
}

/// haphazard's, read under one hazard pointer.
pub struct Hazardous(Vec<haphazard::AtomicPtr<usize>>);

impl Hazardous {
    /// Pointers that last as long as the process.
    #[expect(clippy::new_without_default, reason = "as the others are made")]
    pub fn new() -> Self {
        Self((0..COUNT).map(|at| haphazard::AtomicPtr::from(Box::new(next(at)))).collect())
    }

    /// `count` reads, each of which has `hazard` name another value.
    ///
    /// # Panics
    ///
    /// Never: no pointer is null.
    #[inline(never)]
    pub fn reads(&self, hazard: &mut HazardPointer<'static>, is_dependent: bool, count: u32) {
        reads(count, is_dependent, |at| *self.0[at].safe_load(hazard).expect("it is not null"));
    }
}

/// left-right's: two copies of all numbers.
pub struct Copies {
    reader: left_right::ReadHandle<Numbers>,
    _writer: left_right::WriteHandle<Numbers, Replace>,
}

#[derive(Clone)]
struct Numbers(Vec<usize>);

/// A change, which both copies take.
struct Replace(usize, usize);

impl left_right::Absorb<Replace> for Numbers {
    fn absorb_first(&mut self, replace: &mut Replace, _: &Self) {
        self.0[replace.0] = replace.1;
    }

    fn sync_with(&mut self, first: &Self) {
        self.clone_from(first);
    }
}

impl Copies {
    /// Both copies, and a reader of them.
    #[expect(clippy::new_without_default, reason = "as the others are made")]
    pub fn new() -> Self {
        let numbers = Numbers((0..COUNT).map(next).collect());
        let (mut writer, reader) = left_right::new_from_empty(numbers);
        writer.append(Replace(0, next(0)));
        writer.publish();
        Self { reader, _writer: writer }
    }

    /// `count` sections with `EACH` reads each.
    ///
    /// # Panics
    ///
    /// Never: the writer lasts as long as this.
    #[inline(never)]
    pub fn exits<const EACH: usize>(&self, count: u32) {
        for _ in 0..count {
            let section = self.reader.enter().expect("the writer is there");
            for at in 0..EACH {
                black_box(section.0[at]);
            }
        }
    }
}
