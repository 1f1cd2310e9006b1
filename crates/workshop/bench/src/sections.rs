//! Read-side sections that are entered and left again at once.

use std::hint::black_box;
use std::sync::Arc;

use crossbeam_epoch::LocalHandle;
use mayfly_platform::Platform;
use mayfly_srcu::{Config, Reader, Srcu};

/// A domain on `platform`, without a worker.
///
/// # Panics
///
/// If there is no memory for it.
pub fn domain(platform: Arc<dyn Platform>) -> Srcu {
    Srcu::try_new(platform, Config::default()).expect("a domain takes little memory")
}

/// A registered reader of `domain`.
///
/// # Panics
///
/// If there is no memory for it.
pub fn reader(domain: &Srcu) -> Reader {
    domain.reader().expect("a reader takes little memory")
}

/// `count` sections of a registered reader.
#[inline(never)]
pub fn registered(reader: &Reader, count: u32) {
    for _ in 0..count {
        drop(reader.lock());
    }
}

/// `count` sections of nobody in particular.
#[inline(never)]
pub fn anonymous(domain: &Srcu, count: u32) {
    for _ in 0..count {
        drop(domain.read_lock());
    }
}

/// `count` sections of crossbeam's default collector, through its thread-local handle.
#[inline(never)]
pub fn crossbeam_pin(count: u32) {
    for _ in 0..count {
        drop(crossbeam_epoch::pin());
    }
}

/// `count` sections of crossbeam's, through a handle that the caller keeps.
#[inline(never)]
pub fn crossbeam_handle(handle: &LocalHandle, count: u32) {
    for _ in 0..count {
        drop(black_box(handle).pin());
    }
}
