//! What the Mayfly core asks of the world around it.
//!
//! The core runs in an ordinary process, on bare metal, and under model checkers. It therefore touches none of them
//! directly: it waits, reads time, orders memory across CPUs and accounts for its work through [`Platform`], allocates
//! through [`memory`] (where every allocation may fail), and takes its atomics from [`sync`] (where a model checker's
//! can take their place).
//!
//! With the `std` feature, [`Host`] is the platform of a Linux process.

#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test, loom, shuttle))]
extern crate std;

pub mod address;
pub mod cache;
pub mod frames;
pub mod lock;
pub mod memory;
pub mod sync;
pub mod time;
pub mod tlb;

mod charge;
#[cfg(all(feature = "std", not(any(mayfly_loom, mayfly_shuttle))))]
mod host;
#[cfg(any(mayfly_loom, mayfly_shuttle))]
mod model;

pub use charge::Op;
#[cfg(all(feature = "std", not(any(mayfly_loom, mayfly_shuttle))))]
pub use host::Host;
#[cfg(any(mayfly_loom, mayfly_shuttle))]
pub use model::Model;
#[cfg(mayfly_shuttle)]
pub use model::check_schedules;

use frames::Frames;
use sync::AtomicU32;
use time::Instant;
use tlb::Tlb;

/// How readers that announce themselves with plain stores are ordered against a writer that looks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderBarrier {
    /// Every reader executes a full fence; the writer's own fence pairs with it.
    Fenced,
    /// Readers execute only a compiler barrier; [`Platform::heavy_barrier`] makes up for it on every CPU that runs one.
    Asymmetric,
}

/// The world, as the core sees it. One value serves every VM of a process or a hypervisor.
pub trait Platform: Send + Sync {
    /// Blocks while `*word == expected`, and may return earlier for no reason: callers check again.
    ///
    /// The comparison and the decision to block are one step with respect to [`Platform::wake`]: a waker that changes
    /// the word and then wakes is never missed.
    fn wait(&self, word: &AtomicU32, expected: u32);

    /// As [`Platform::wait`], and returns at `deadline` at the latest.
    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant);

    /// Wakes everyone who waits on `word`.
    fn wake(&self, word: &AtomicU32);

    /// The time since an arbitrary, fixed moment; never goes backwards.
    fn now(&self) -> Instant;

    /// Which barrier readers need here. The answer never changes; domains ask once, when they are built.
    fn reader_barrier(&self) -> ReaderBarrier;

    /// Makes every CPU that is executing a reader pass a full memory barrier before this returns; a full barrier for
    /// the caller too. Called only where [`Platform::reader_barrier`] is [`ReaderBarrier::Asymmetric`].
    fn heavy_barrier(&self);

    /// Lets others have this CPU for a moment, if any want it. A vCPU calls this between two stays in the guest, where
    /// it holds nothing. The default goes on at once.
    fn relax(&self) {}

    /// Accounts for `op`. The default keeps no books.
    fn charge(&self, op: Op) {
        let _ = op;
    }
}

/// A world whose CPUs translate guest addresses: what stage 2 needs beside [`Platform`].
pub trait Mmu: Platform + Frames + Tlb {}

impl<P: Platform + Frames + Tlb> Mmu for P {}
