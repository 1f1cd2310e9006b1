//! Slices whose memory is asked for once.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mayfly_platform::memory::OutOfMemory;

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
