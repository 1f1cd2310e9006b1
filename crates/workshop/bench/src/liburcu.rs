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

    /// Whether liburcu found `membarrier`; otherwise its readers execute fences.
    pub fn uses_membarrier(&self) -> bool {
        // SAFETY: liburcu is initialised.
        unsafe { mayfly_bench_liburcu_uses_membarrier() != 0 }
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
