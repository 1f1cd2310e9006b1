//! Readers: a record each, on a cache line of its own, written by plain stores.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use mayfly_platform::memory::{OutOfMemory, try_box};
use mayfly_platform::sync::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, CacheLine, Ordering, compiler_fence, fence,
};

use crate::Srcu;

/// Low bits of [`Record::section`]: how deeply the reader is nested.
const NESTING: u64 = 0xffff;
/// One more section left.
const SECTION: u64 = NESTING + 1;

/// What a reader shows of itself.
pub(crate) struct Record {
    /// Written by the reader alone.
    pub(crate) reader: CacheLine<ReaderLine>,
    /// Written under the domain's gate.
    pub(crate) sampled: CacheLine<SampledLine>,
    /// Whether some [`Reader`] has this record.
    leased: AtomicBool,
    /// The record that was there before this one; never changes.
    next: *mut Record,
}

pub(crate) struct ReaderLine {
    /// The number of sections left so far (48 bits), and the nesting of the present one (16 bits; 0: outside).
    section: AtomicU64,
    /// Somebody sleeps until this reader leaves. Set by waiters, which is rare; read at each leave.
    pub(crate) awaited: AtomicBool,
}

pub(crate) struct SampledLine {
    /// The last section that a grace period found this reader inside; none yet: `u64::MAX`.
    pub(crate) section: AtomicU64,
    /// The first grace period that found it there.
    pub(crate) period: AtomicU64,
}

impl Record {
    fn new() -> Self {
        Self {
            reader: CacheLine(ReaderLine {
                section: AtomicU64::new(0),
                awaited: AtomicBool::new(false),
            }),
            sampled: CacheLine(SampledLine {
                section: AtomicU64::new(u64::MAX),
                period: AtomicU64::new(0),
            }),
            leased: AtomicBool::new(true),
            next: core::ptr::null_mut(),
        }
    }

    /// The section that the reader is inside, if it is inside one.
    ///
    /// Acquire, pairing with the release in [`Reader::leave`]: what a section that is over did, happened before.
    pub(crate) fn inside(&self) -> Option<u64> {
        let word = self.reader.section.load(Ordering::Acquire);
        (word & NESTING != 0).then_some(word / SECTION)
    }
}

/// Every record of a domain: a list that only grows, so that whoever scans it needs no lock. A record whose reader is
/// gone is leased to the next one.
pub(crate) struct Registry {
    first: AtomicPtr<Record>,
    live: AtomicUsize,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self { first: AtomicPtr::new(core::ptr::null_mut()), live: AtomicUsize::new(0) }
    }

    /// Whether no reader has a record. The caller executed a full fence before; see `lease`.
    pub(crate) fn is_empty(&self) -> bool {
        self.live.load(Ordering::Acquire) == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        // Acquire, pairing with the release in `lease`: the record is initialised.
        let mut at = self.first.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: records are freed with the registry, which `self` keeps.
            let record = unsafe { at.as_ref() }?;
            at = record.next;
            Some(record)
        })
    }

    fn lease(&self) -> Result<NonNull<Record>, OutOfMemory> {
        let free = self.iter().find(|record| {
            // Acquire, pairing with the release in `Reader::drop`: the last reader's sections happened before.
            record
                .leased
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        let record = match free {
            Some(record) => NonNull::from(record),
            None => self.grow()?,
        };
        self.live.fetch_add(1, Ordering::Relaxed);
        // A writer whose fence comes before this one may find no reader here, and then passes only its own fence: what
        // it published before that is what this reader's loads, all after this fence, find. A writer whose fence comes
        // after finds this reader.
        fence(Ordering::SeqCst);
        Ok(record)
    }

    fn grow(&self) -> Result<NonNull<Record>, OutOfMemory> {
        let record = NonNull::from(Box::leak(try_box(Record::new())?));
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // SAFETY: nobody else has the record until it is published below.
            unsafe { (*record.as_ptr()).next = first };
            let published = self.first.compare_exchange(
                first,
                record.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match published {
                Ok(_) => return Ok(record),
                Err(now) => first = now,
            }
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let mut at = self.first.load(Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: the records came from `Box::leak`, and the last reader went before the registry did.
            let record = unsafe { Box::from_raw(at) };
            at = record.next;
        }
    }
}

/// One reader: a vCPU, or a thread. It may move between threads, and is inside on one of them at a time.
///
/// Entering and leaving write one cache line that is this reader's own, with plain stores; where the domain's platform
/// has no asymmetric barrier ([`Srcu::is_fenced`]), with a full fence each.
pub struct Reader {
    record: NonNull<Record>,
    fenced: bool,
    domain: Srcu,
    /// Nested guards count in a plain word, so one thread at a time.
    one_thread: PhantomData<core::cell::Cell<()>>,
}

// SAFETY: the record is this reader's alone, and everything in it is atomic; sections of a reader that moved between
// threads are ordered by whatever moved it.
unsafe impl Send for Reader {}

impl Reader {
    pub(crate) fn register(domain: &Srcu) -> Result<Self, OutOfMemory> {
        Ok(Self {
            record: domain.registry().lease()?,
            fenced: domain.is_fenced(),
            domain: domain.clone(),
            one_thread: PhantomData,
        })
    }

    /// Enters a read-side section; the guard leaves it. Guards nest, and may be held across blocking.
    ///
    /// # Panics
    ///
    /// With 65,535 guards of this reader alive, as only a leak makes them.
    #[inline]
    pub fn lock(&self) -> ReadGuard<'_> {
        let section = &self.line().section;
        let word = section.load(Ordering::Relaxed);
        if word & NESTING == NESTING {
            too_deep();
        }
        section.store(word + 1, Ordering::Relaxed);
        // [light], see the protocol.
        self.light_barrier();
        ReadGuard { reader: self }
    }

    /// Whether this reader is inside a section.
    pub fn is_inside(&self) -> bool {
        self.line().section.load(Ordering::Relaxed) & NESTING != 0
    }

    /// The domain that this reader belongs to.
    #[inline]
    pub fn domain(&self) -> &Srcu {
        &self.domain
    }

    #[inline]
    fn leave(&self) {
        let line = self.line();
        let word = line.section.load(Ordering::Relaxed);
        if word & NESTING > 1 {
            line.section.store(word - 1, Ordering::Relaxed);
            return;
        }
        // Release, pairing with the acquire in `Record::inside`. (Wraps after 2^48 sections, and starts over: at worst
        // a section is then taken for an older one, and waited for once more.)
        line.section.store(word.wrapping_sub(1).wrapping_add(SECTION), Ordering::Release);
        // [light], see the protocol.
        self.light_barrier();
        if line.awaited.load(Ordering::Relaxed) {
            self.wake_waiters();
        }
    }

    #[cold]
    fn wake_waiters(&self) {
        self.line().awaited.store(false, Ordering::Relaxed);
        self.domain.reader_left();
    }

    #[inline]
    fn light_barrier(&self) {
        if self.fenced {
            fence(Ordering::SeqCst);
        } else {
            compiler_fence(Ordering::SeqCst);
        }
    }

    #[inline]
    fn line(&self) -> &ReaderLine {
        // SAFETY: the record lives as long as its domain, which `self.domain` keeps.
        unsafe { &self.record.as_ref().reader.0 }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // A guard borrows its reader, so none is alive; one that was leaked is left here.
        let line = self.line();
        let word = line.section.load(Ordering::Relaxed);
        if word & NESTING != 0 {
            line.section.store((word & !NESTING) | 1, Ordering::Relaxed);
            self.leave();
        }
        // SAFETY: as in `line`.
        let record = unsafe { self.record.as_ref() };
        record.leased.store(false, Ordering::Release);
        // Release, pairing with the acquire in `Registry::is_empty`: this reader's sections happened before.
        self.domain.registry().live.fetch_sub(1, Ordering::Release);
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("inside", &self.is_inside()).finish_non_exhaustive()
    }
}

#[cold]
#[inline(never)]
fn too_deep() -> ! {
    panic!("65,535 guards of one reader are alive");
}

/// A read-side section of a [`Reader`]: what it loads from an [`Rcu`](crate::Rcu) of the same domain stays valid until
/// it is dropped.
#[must_use = "the section ends when the guard is dropped"]
pub struct ReadGuard<'a> {
    reader: &'a Reader,
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.reader.leave();
    }
}

impl fmt::Debug for ReadGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadGuard")
    }
}

/// Proof of being inside a read-side section of some domain.
///
/// # Safety
///
/// While the value lives, its thread is inside a section of the domain that [`Section::domain`] names.
pub unsafe trait Section {
    /// The domain whose readers this section is one of.
    fn domain(&self) -> &Srcu;
}

// SAFETY: the reader is inside from `Reader::lock` until the guard is dropped.
unsafe impl Section for ReadGuard<'_> {
    #[inline]
    fn domain(&self) -> &Srcu {
        &self.reader.domain
    }
}
