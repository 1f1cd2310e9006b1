//! liburcu's QSBR flavour, whose readers say between sections that they are in none.

use core::marker::PhantomData;

unsafe extern "C" {
    fn urcu_qsbr_register_thread();
    fn urcu_qsbr_unregister_thread();
    fn urcu_qsbr_synchronize_rcu();
    fn urcu_qsbr_quiescent_state();
    fn mayfly_bench_qsbr_exits(count: u64, each: u64);
    fn mayfly_bench_qsbr_online_exits(count: u64, each: u64);
}

/// A thread that is registered as a reader, until this is dropped.
#[derive(Debug)]
pub struct Registered {
    /// The registration is the thread's.
    this_thread: PhantomData<*const ()>,
}

impl Registered {
    /// The most reads of a section.
    pub const READS: usize = 8;

    /// Registers this thread, which must not be registered already.
    #[expect(clippy::new_without_default, reason = "the thread must not be registered already")]
    pub fn new() -> Self {
        // SAFETY: the caller says that the thread is not registered.
        unsafe { urcu_qsbr_register_thread() };
        Self { this_thread: PhantomData }
    }

    /// `count` sections with `EACH` reads, each of which ends with a quiescent state. (The loop is C's.)
    pub fn exits<const EACH: usize>(&self, count: u32) {
        const { assert!(EACH <= Self::READS) };
        // SAFETY: `self` says that this thread is registered; there are so many pointers.
        unsafe { mayfly_bench_qsbr_exits(u64::from(count), EACH as u64) }
    }

    /// As [`Registered::exits`], of a thread that is offline between its sections.
    pub fn online_exits<const EACH: usize>(&self, count: u32) {
        const { assert!(EACH <= Self::READS) };
        // SAFETY: as above; the thread is online again when this returns.
        unsafe { mayfly_bench_qsbr_online_exits(u64::from(count), EACH as u64) }
    }
}

impl Registered {
    /// Waits until every registered thread has been in a quiescent state, or is offline.
    pub fn synchronize(&self) {
        // SAFETY: `self` says that this thread is registered, and no method here returns inside a section.
        unsafe { urcu_qsbr_synchronize_rcu() }
    }

    /// A section, whose end is a quiescent state: a thread that is online is inside until it says otherwise.
    pub fn section(&self) -> Section<'_> {
        Section { _registered: self }
    }
}

/// A section of a registered thread.
#[derive(Debug)]
pub struct Section<'a> {
    _registered: &'a Registered,
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        // SAFETY: the thread is registered, and in no other section.
        unsafe { urcu_qsbr_quiescent_state() }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered by `new`, on this thread, and outside of all sections.
        unsafe { urcu_qsbr_unregister_thread() }
    }
}
