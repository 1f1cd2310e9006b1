//! The protocol under loom: every interleaving, and every value that a load may return.
//!
//! A frame that is freed is mutated without synchronisation, so loom fails the model if anybody's access to the table
//! in it is not ordered before, or comes later. A waiter that is never woken is a deadlock, which loom reports.

#![cfg(mayfly_loom)]

mod alike;
mod faults;
mod logs;
mod picked;
mod roots;
mod tables;

#[path = "../model/explore.rs"]
mod explore;
#[allow(dead_code)]
#[path = "../model/mod.rs"]
mod model;

use std::sync::Arc;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread::{self, JoinHandle};

use mayfly_srcu::Reader;
use mayfly_stage2::{Format, Leaf, Level, Mapped, Role, RootRef, Seen};

use explore::explore;
use model::granted::MapsAny;
use model::{NoTlb, readable};

/// Changes in place what it may.
type InPlace = model::Tiny<false>;
/// Makes entries absent first.
type BreakFirst = model::Tiny<true>;

type Vm<F> = model::Vm<F, NoTlb>;

/// With as many preemptions as `scripts/test` says.
fn check(model: impl Fn() + Send + Sync + 'static) {
    explore(Builder::new(), model);
}

/// A VM with its root, on a machine with room for `tables` tables below.
fn vm<F: Format>(tables: usize) -> (Arc<Vm<F>>, RootRef<F>) {
    let vm = Arc::new(Vm::new(1 + tables, NoTlb));
    let root = vm.stage2.root(Role::MAIN, &vm.domain.read_lock()).unwrap();
    (vm, root)
}

/// A vCPU that has left its guest to handle faults.
struct Vcpu<F: Format> {
    vm: Arc<Vm<F>>,
    root: RootRef<F>,
    reader: Reader,
}

impl<F: Format> Vcpu<F> {
    fn new(vm: &Arc<Vm<F>>, root: &RootRef<F>) -> Self {
        Self { vm: Arc::clone(vm), root: root.clone(), reader: vm.domain.reader().unwrap() }
    }

    fn in_thread<T: 'static>(self, life: impl FnOnce(&Self) -> T + 'static) -> JoinHandle<T> {
        thread::spawn(move || life(&self))
    }

    fn map(&self, gfn: u64, level: Level, leaf: &Leaf, seen: Seen) -> Mapped {
        self.root.map(model::gfn(gfn), level, leaf, seen, &self.reader.lock()).unwrap()
    }

    /// Maps without asking anybody.
    fn map_page(&self, gfn: u64, leaf: &Leaf) -> Mapped {
        self.map(gfn, Level::PAGE, leaf, self.vm.stage2.sample())
    }

    fn translate(&self, gfn: u64) -> Option<(Level, Leaf)> {
        self.root.translate(model::gfn(gfn), &self.reader.lock())
    }

    fn pfn(&self, gfn: u64) -> Option<u64> {
        let (level, leaf) = self.translate(gfn)?;
        Some(leaf.pfn.get() + (gfn & (level.pages() - 1)))
    }

    /// Asks `host` which frame is behind page `gfn`, and maps it.
    fn fault(&self, gfn: u64, host: &AtomicU64) -> Mapped {
        let seen = self.vm.stage2.sample();
        let pfn = host.load(Ordering::Relaxed);
        self.map(gfn, Level::PAGE, &readable(pfn), seen)
    }

    /// As [`Vcpu::fault`], the short way, and the long one where that does not do.
    fn fault_shortly(&self, gfn: u64, host: &AtomicU64) -> Mapped {
        let seen = self.vm.stage2.sample();
        let leaf = readable(host.load(Ordering::Relaxed));
        let mapped = self.root.map_missing_page(model::gfn(gfn), &leaf, seen, &self.reader.lock());
        mapped.unwrap_or_else(|| self.map(gfn, Level::PAGE, &leaf, seen))
    }
}

/// What the host has behind page 5, before and after.
const OLD: u64 = 0x10;
const NEW: u64 = 0x20;
