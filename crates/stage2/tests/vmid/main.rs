//! VMIDs: their rules, one by one and against a naive model, and threads that contend for few of them.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod model;
mod rules;
mod threads;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_platform::Host;
use mayfly_stage2::Vmids;

/// How often all VMIDs were forgotten.
#[derive(Clone, Default)]
struct Forgotten(Arc<AtomicUsize>);

impl Forgotten {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn vmids(&self, bits: u32) -> Vmids {
        let this = self.clone();
        let forget = move || {
            this.0.fetch_add(1, Ordering::Relaxed);
        };
        Vmids::try_new(world::mmu(Host::new(), forget), bits).unwrap()
    }
}
