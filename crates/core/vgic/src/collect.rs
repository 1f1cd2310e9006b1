//! Slices whose memory is asked for once, and copies of atomics.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU32, AtomicU64, Ordering};

/// How many values are copied between two pauses.
const PART: usize = 64;

/// So many values, each of which `make` makes by its number. (Where `make` may fail, each takes some instructions more.)
pub(crate) fn try_fill<T>(
    count: usize,
    make: impl FnMut(usize) -> T,
) -> Result<Box<[T]>, OutOfMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(count)?;
    all.extend((0..count).map(make));
    Ok(all.into_boxed_slice())
}

/// The same where `make` may fail.
pub(crate) fn try_collect<T>(
    count: usize,
    mut make: impl FnMut(usize) -> Result<T, OutOfMemory>,
) -> Result<Box<[T]>, OutOfMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(count)?;
    for index in 0..count {
        all.push(make(index)?);
    }
    Ok(all.into_boxed_slice())
}

/// So many values, each a `copy` of one. Calls `pause` now and then.
pub(crate) fn try_copy<T>(
    from: &[T],
    copy: impl Fn(&T) -> T,
    pause: &mut dyn FnMut(),
) -> Result<Box<[T]>, OutOfMemory> {
    try_fill(from.len(), |at| {
        if at % PART == PART - 1 {
            pause();
        }
        copy(&from[at])
    })
}

/// A word with the value of another. Acquire: of whoever has stored it.
pub(crate) fn word(from: &AtomicU64) -> AtomicU64 {
    AtomicU64::new(from.load(Ordering::Acquire))
}

/// The same of half a word.
pub(crate) fn half(from: &AtomicU32) -> AtomicU32 {
    AtomicU32::new(from.load(Ordering::Acquire))
}
