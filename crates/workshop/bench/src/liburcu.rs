//! liburcu's memb flavour, which orders its readers by `membarrier(2)` as Mayfly does.

use core::ffi::c_int;
use core::marker::PhantomData;

unsafe extern "C" {
    fn urcu_memb_init();
    fn urcu_memb_register_thread();
    fn urcu_memb_unregister_thread();
    fn urcu_memb_read_lock();
    fn urcu_memb_read_unlock();
    fn urcu_memb_synchronize_rcu();
    fn mayfly_bench_liburcu_sections(count: u64);
    fn urcu_memb_barrier();
    fn mayfly_bench_liburcu_call_on(processor: c_int);
    fn mayfly_bench_liburcu_calls(count: u64);
    fn mayfly_bench_liburcu_uses_membarrier() -> c_int;
}

/// A thread that is registered as a reader, until this is dropped.
#[derive(Debug)]
pub struct Registered {
    /// The registration is the thread's.
    this_thread: PhantomData<*const ()>,
}

impl Registered {
    /// Registers this thread, which must not be registered already.
    pub fn new() -> Self {
        // SAFETY: initialising again does nothing, and liburcu is initialised when a thread registers.
        unsafe {
            urcu_memb_init();
            urcu_memb_register_thread();
        }
        Self { this_thread: PhantomData }
    }

    /// Enters and leaves `count` sections, inlined as a C program has them. (The loop is C's.)
    pub fn inlined_sections(&self, count: u32) {
        // SAFETY: `self` says that this thread is registered.
        unsafe { mayfly_bench_liburcu_sections(u64::from(count)) }
    }

    /// Enters and leaves `count` sections through the functions that the library exports.
    pub fn exported_sections(&self, count: u32) {
        for _ in 0..count {
            // SAFETY: `self` says that this thread is registered; each lock has its unlock.
            unsafe {
                urcu_memb_read_lock();
                urcu_memb_read_unlock();
            }
        }
    }

    /// Waits for all sections, this thread being outside.
    pub fn synchronize(&self) {
        // SAFETY: liburcu is initialised, and no method here returns inside a section.
        unsafe { urcu_memb_synchronize_rcu() }
    }

    /// A section.
    pub fn section(&self) -> Section<'_> {
        // SAFETY: `self` says that this thread is registered; the section's drop has the unlock.
        unsafe { urcu_memb_read_lock() }
        Section { _registered: self }
    }

    /// Has what this thread defers from now on freed by a thread on `processor`, if it is given one.
    pub fn free_on(&self, processor: Option<usize>) {
        let processor = processor.and_then(|processor| c_int::try_from(processor).ok());
        // SAFETY: liburcu is initialised. Its thread lasts as long as the process.
        unsafe { mayfly_bench_liburcu_call_on(processor.unwrap_or(-1)) }
    }

    /// `count` words, allocated and deferred one by one with `call_rcu`. (The loop is C's.)
    pub fn calls(&self, count: u32) {
        // SAFETY: `self` says that this thread is registered.
        unsafe { mayfly_bench_liburcu_calls(u64::from(count)) }
    }

    /// Waits until all that was deferred is freed.
    pub fn barrier(&self) {
        // SAFETY: liburcu is initialised, and no method here returns inside a section but [`Registered::section`], whose
        // guard borrows `self` as this does; a caller that has one would wait for ever.
        unsafe { urcu_memb_barrier() }
    }

    /// Whether liburcu found `membarrier`; otherwise its readers execute fences.
    pub fn uses_membarrier(&self) -> bool {
        // SAFETY: liburcu is initialised.
        unsafe { mayfly_bench_liburcu_uses_membarrier() != 0 }
    }
}

/// A section of a registered thread.
#[derive(Debug)]
pub struct Section<'a> {
    _registered: &'a Registered,
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        // SAFETY: the lock was taken when this was made, on this thread.
        unsafe { urcu_memb_read_unlock() }
    }
}

impl Default for Registered {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered by `new`, on this thread, and outside of all sections.
        unsafe { urcu_memb_unregister_thread() }
    }
}
