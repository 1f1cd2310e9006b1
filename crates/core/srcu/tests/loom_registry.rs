//! The registry alone under loom: without the fences of a section, which readers of an asymmetric domain do not pass.

#![cfg(mayfly_loom)]

#[path = "../src/registry.rs"]
mod registry;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use mayfly_platform::sync::fence;
use registry::Registry;

struct World {
    registry: Registry,
    replaced: AtomicBool,
    old: UnsafeCell<u32>,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            registry: Registry::new(),
            replaced: AtomicBool::new(false),
            old: UnsafeCell::new(1),
        })
    }

    fn read(&self) {
        if !self.replaced.load(Ordering::Acquire) {
            // SAFETY: loom checks it.
            self.old.with(|old| assert_eq!(unsafe { *old }, 1, "read after free"));
        }
    }

    /// Replaces what is old, and frees it if nobody can have it.
    fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.registry.is_empty() {
            // SAFETY: loom checks it.
            self.old.with_mut(|old| unsafe { *old = 0 });
        }
    }
}

#[test]
fn a_writer_that_finds_nobody_registered_is_found_by_whoever_registers_later() {
    loom::model(|| {
        let world = World::new();
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.registry.enter();
                world.read();
            })
        };
        world.replace();
        reader.join().unwrap();
    });
}

#[test]
fn a_writer_that_finds_nobody_any_more_comes_after_what_they_read() {
    loom::model(|| {
        let world = World::new();
        world.registry.enter();
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.read();
                world.registry.leave();
            })
        };
        world.replace();
        reader.join().unwrap();
    });
}
