//! The atomics that the core is written in: the machine's own, or a model checker's under `--cfg mayfly_loom` or
//! `--cfg mayfly_shuttle`.

#[cfg(mayfly_loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(mayfly_shuttle)]
pub use shuttle::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(not(any(mayfly_loom, mayfly_shuttle)))]
pub use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

pub use core::sync::atomic::compiler_fence;

/// A value on cache lines of its own, so that writing it disturbs no neighbour.
///
/// 128 bytes: x86-64 prefetches lines in pairs, and arm64 has cores with 128-byte lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CacheLine<T>(pub T);

impl<T> core::ops::Deref for CacheLine<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
