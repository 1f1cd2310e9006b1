//! Readers that each have a record of their own, on a cache line of its own, which plain stores write.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use mayfly_platform::memory::{OutOfMemory, try_box};
use mayfly_platform::sync::{Ordering, compiler_fence, fence};

use crate::contexts::{self, LOOKED_FOR};
use crate::record::{NESTING, ReaderLine, Record, SECTION};
use crate::{Section, Srcu};

/// One reader: a vCPU, or a thread. It may move between threads, and is inside on one of them at a time.
///
/// Entering and leaving write one cache line that is this reader's own, with a store each; where the domain's platform
/// has no asymmetric barrier ([`Srcu::is_fenced`]), entering executes a full fence too.
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
        let record = NonNull::from(Box::leak(try_box(Record::new())?));
        // SAFETY: the record is valid until `Reader::drop`, which has it unregistered first.
        unsafe { domain.inner().register(record) };
        Ok(Self {
            record,
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
        // Before it is entered: a thread that finds the section must not take it for one of the context that entered
        // the one before.
        if LOOKED_FOR && !self.is_inside() {
            let here = contexts::here(self.domain.inner().world());
            self.note_context(here.map_or(0, |here| here.get().get()));
        }
        self.enter();
        ReadGuard { reader: self }
    }

    /// Enters a section that goes where the guard goes, to another thread or into a structure, with this reader in it.
    pub fn lock_owned(self) -> OwnedReadGuard {
        if !self.is_inside() {
            // Wherever the guard goes, its section is not known to be of this context.
            self.note_context(0);
        }
        self.enter();
        OwnedReadGuard { reader: self }
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
    fn enter(&self) {
        let line = self.line();
        let section = &line.section;
        let word = section.load(Ordering::Relaxed);
        if word & NESTING == NESTING {
            too_deep();
        }
        // [light], see the protocol. Release, as in `leave`: a thread that reads this word instead of that one knows by
        // it that the section before is over, and a plain store would not carry on what that one released.
        if self.fenced {
            section.store(word + 1, Ordering::Release);
            full_fence(line);
        } else {
            section.store(word + 1, Ordering::Release);
            compiler_barrier();
        }
    }

    #[inline]
    fn leave(&self) {
        let line = self.line();
        let word = line.section.load(Ordering::Relaxed);
        if word & NESTING > 1 {
            // Release, as in `enter`.
            line.section.store(word - 1, Ordering::Release);
            return;
        }
        // Release, pairing with the acquire in `Record::inside`. (Wraps after 2^48 sections, and starts over: at worst
        // a section is then taken for an older one, and waited for once more.)
        line.section.store(word.wrapping_sub(1).wrapping_add(SECTION), Ordering::Release);
        // [light] on an asymmetric domain. On a fenced one nothing orders the load behind the store: see *Sleeping* in
        // the protocol.
        if cfg!(any(mayfly_loom, mayfly_shuttle)) && self.fenced {
            compiler_fence(Ordering::SeqCst);
        } else {
            compiler_barrier();
        }
        if line.awaited.load(Ordering::Relaxed) {
            self.wake_waiters();
        }
    }

    #[cold]
    fn wake_waiters(&self) {
        self.line().awaited.store(false, Ordering::Relaxed);
        self.domain.inner().reader_left();
    }

    fn note_context(&self, context: u64) {
        self.line().entered_by.store(context, core::sync::atomic::Ordering::Relaxed);
    }

    #[inline]
    fn line(&self) -> &ReaderLine {
        // SAFETY: the record is valid until this is dropped.
        unsafe { &self.record.as_ref().reader.0 }
    }
}

/// A full fence, of the reader whose line it is.
#[inline]
fn full_fence(line: &ReaderLine) {
    // One locked instruction, which is a full fence on x86 and takes half the time of an `mfence`. (The language does not
    // know that it is one, so not for Miri and the model checkers.) It locks a word of its own: what it had locked,
    // `leave` could read only when all of it is done.
    if cfg!(all(target_arch = "x86_64", not(any(miri, mayfly_loom, mayfly_shuttle)))) {
        line.locked.swap(0, core::sync::atomic::Ordering::SeqCst);
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// What becomes a full barrier where the platform's heavy barrier meets it. Under a model checker nothing meets it, so
/// there it is one.
#[inline]
fn compiler_barrier() {
    if cfg!(any(mayfly_loom, mayfly_shuttle)) {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
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
        // SAFETY: registered in `register`, and unregistered here alone.
        unsafe { self.domain.inner().unregister(self.record) };
        // SAFETY: the record came from `Box::leak`, and no thread finds it any more.
        drop(unsafe { Box::from_raw(self.record.as_ptr()) });
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

/// A read-side section that has its [`Reader`] with it: see [`Reader::lock_owned`].
#[must_use = "the section ends when the guard is dropped"]
pub struct OwnedReadGuard {
    reader: Reader,
}

impl OwnedReadGuard {
    /// Leaves the section, and gives the reader back.
    pub fn unlock(self) -> Reader {
        self.reader.leave();
        let this = ManuallyDrop::new(self);
        // SAFETY: moved out once; `this` is not dropped.
        unsafe { core::ptr::read(&raw const this.reader) }
    }
}

impl Drop for OwnedReadGuard {
    fn drop(&mut self) {
        self.reader.leave();
    }
}

impl fmt::Debug for OwnedReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnedReadGuard")
    }
}

// SAFETY: the reader is inside from `Reader::lock` until the guard is dropped.
unsafe impl Section for ReadGuard<'_> {
    #[inline]
    fn domain(&self) -> &Srcu {
        &self.reader.domain
    }
}

// SAFETY: the reader is inside from `Reader::lock_owned` until the guard is dropped.
unsafe impl Section for OwnedReadGuard {
    #[inline]
    fn domain(&self) -> &Srcu {
        &self.reader.domain
    }
}
