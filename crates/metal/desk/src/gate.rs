//! A gate before what many callers use, each for a moment, and which one of them has for itself for a while.
//!
//! One word has the count of callers inside, and a bit that the gate is shut. A caller that goes in adds itself, and sees by the
//! same step whether the gate is shut: then it leaves at once. All steps are on that word, so they have one order. A caller
//! whose step is behind the shut bit does not come in. One whose step is before it is counted in what
//! [`is_empty`](Gate::is_empty) reads. *What callers inside have done is seen by the one that has shut it*: [`Inside`] is
//! dropped with release, and the count is read with acquire. *What that one has done is seen by those that come in later*:
//! it opens with release, and they add themselves with acquire.

use mayfly_platform::sync::{AtomicU32, Ordering};

const SHUT: u32 = 1 << 31;

/// Whether it is shut, and how many callers are inside.
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

/// A caller that is inside, until this is dropped.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

impl Gate {
    /// Goes in, unless it is shut.
    pub fn enter(&self) -> Option<Inside<'_>> {
        // Acquire: what was done while it was shut is over.
        let before = self.0.fetch_add(1, Ordering::Acquire);
        let inside = Inside(self);
        (before & SHUT == 0).then_some(inside)
    }

    /// Lets no caller in any more. Those that are inside stay until they are through.
    pub fn shut(&self) {
        self.0.fetch_or(SHUT, Ordering::Relaxed);
    }

    /// Whether no caller is inside, once it is [shut](Gate::shut). Then none will be until it is [open](Gate::open).
    pub fn is_empty(&self) -> bool {
        // Acquire: what those have done that were inside is over.
        self.0.load(Ordering::Acquire) & !SHUT == 0
    }

    /// Lets callers in again.
    pub fn open(&self) {
        self.0.fetch_and(!SHUT, Ordering::Release);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}
