//! A platform on top of another one.

use crate::observe::Observer;
use crate::sync::AtomicU32;
use crate::time::Instant;
use crate::{Context, Identity, Op, Platform, ReaderBarrier};

/// A platform that is another one but for what it says itself: every method that it does not have is passed on to
/// [`below`](Layer::below). A type that is a layer is a [`Platform`].
///
/// # Safety
///
/// As of [`Platform`], whose promises what is passed on keeps; and `below` is the same platform always.
pub unsafe trait Layer: Send + Sync {
    /// The other one.
    type Below: Platform + ?Sized;

    /// What the rest is passed on to.
    fn below(&self) -> &Self::Below;

    /// As [`Platform::identity`].
    #[inline]
    fn identity(&self) -> Identity {
        self.below().identity()
    }

    /// As [`Platform::wait`].
    #[inline]
    fn wait(&self, word: &AtomicU32, expected: u32) {
        self.below().wait(word, expected);
    }

    /// As [`Platform::wait_until`].
    #[inline]
    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        self.below().wait_until(word, expected, deadline);
    }

    /// As [`Platform::wake`].
    #[inline]
    fn wake(&self, word: &AtomicU32) {
        self.below().wake(word);
    }

    /// As [`Platform::cpus`].
    #[inline]
    fn cpus(&self) -> u32 {
        self.below().cpus()
    }

    /// As [`Platform::interrupt`].
    #[inline]
    fn interrupt(&self, cpu: u32) {
        self.below().interrupt(cpu);
    }

    /// As [`Platform::now`].
    #[inline]
    fn now(&self) -> Instant {
        self.below().now()
    }

    /// As [`Platform::reader_barrier`].
    #[inline]
    fn reader_barrier(&self) -> ReaderBarrier {
        self.below().reader_barrier()
    }

    /// As [`Platform::heavy_barrier`].
    #[inline]
    fn heavy_barrier(&self) {
        self.below().heavy_barrier();
    }

    /// As [`Platform::context`].
    #[inline]
    fn context(&self) -> Option<Context> {
        self.below().context()
    }

    /// As [`Platform::relax`].
    #[inline]
    fn relax(&self) {
        self.below().relax();
    }

    /// As [`Platform::spin`].
    #[inline]
    fn spin(&self) {
        self.below().spin();
    }

    /// As [`Platform::preemption_point`].
    #[inline]
    fn preemption_point(&self) {
        self.below().preemption_point();
    }

    /// As [`Platform::charge`].
    #[inline]
    fn charge(&self, op: Op) {
        self.below().charge(op);
    }

    /// As [`Platform::observer`].
    #[inline]
    fn observer(&self) -> Option<&dyn Observer> {
        self.below().observer()
    }
}

// SAFETY: the layer promises it. None is left to a default, which would pass over what is below.
#[deny(clippy::missing_trait_methods)]
unsafe impl<L: Layer> Platform for L {
    #[inline]
    fn identity(&self) -> Identity {
        Layer::identity(self)
    }

    #[inline]
    fn wait(&self, word: &AtomicU32, expected: u32) {
        Layer::wait(self, word, expected);
    }

    #[inline]
    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        Layer::wait_until(self, word, expected, deadline);
    }

    #[inline]
    fn wake(&self, word: &AtomicU32) {
        Layer::wake(self, word);
    }

    #[inline]
    fn cpus(&self) -> u32 {
        Layer::cpus(self)
    }

    #[inline]
    fn interrupt(&self, cpu: u32) {
        Layer::interrupt(self, cpu);
    }

    #[inline]
    fn now(&self) -> Instant {
        Layer::now(self)
    }

    #[inline]
    fn reader_barrier(&self) -> ReaderBarrier {
        Layer::reader_barrier(self)
    }

    #[inline]
    fn heavy_barrier(&self) {
        Layer::heavy_barrier(self);
    }

    #[inline]
    fn context(&self) -> Option<Context> {
        Layer::context(self)
    }

    #[inline]
    fn relax(&self) {
        Layer::relax(self);
    }

    #[inline]
    fn spin(&self) {
        Layer::spin(self);
    }

    #[inline]
    fn preemption_point(&self) {
        Layer::preemption_point(self);
    }

    #[inline]
    fn charge(&self, op: Op) {
        Layer::charge(self, op);
    }

    #[inline]
    fn observer(&self) -> Option<&dyn Observer> {
        Layer::observer(self)
    }
}
