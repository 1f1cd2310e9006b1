//! Operations that count themselves, under loom: who finds that another has changed an entry, and finds him counted no
//! more, comes after his invalidation.

#![cfg(mayfly_loom)]

#[path = "model/explore.rs"]
mod explore;
#[allow(dead_code)]
mod model;

use std::sync::Arc;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_srcu::Reader;
use mayfly_stage2::{Announcement, Level, Role, RootRef, Tables};

use explore::explore;
use model::granted::MapsAny;
use model::{Tiny, WHOLE, gfn, gfns, writable};

type Vm = model::Vm<Tiny<false>, Forgets>;

/// TLBs that remember page 5, until it is said to be forgotten: which orders nothing by itself.
struct Forgets(AtomicU64);

// SAFETY: nobody walks the tables but the core.
unsafe impl Tlb for Forgets {
    fn issue(&self, _: Vmid, _: Scope) -> TlbToken {
        TlbToken(0)
    }

    fn complete(&self, _: TlbToken) {
        self.0.store(1, Ordering::Relaxed);
    }

    fn invalidate_all_vmids(&self) {}
}

/// A VM whose root a CPU names, with page 5 mapped to be written.
fn vm() -> (Arc<Vm>, RootRef<Tiny<false>>, Reader) {
    let vm = Arc::new(Vm::new(2, Forgets(AtomicU64::new(0))));
    let reader = vm.domain.reader().unwrap();
    let root = vm.stage2.root(Role::MAIN, &reader.lock()).unwrap();
    // SAFETY: no guest is on this CPU.
    let _ = unsafe { root.tag().activate(0, vm.config.vmids.vcpu()) };
    let seen = vm.stage2.sample();
    root.map(gfn(5), Level::PAGE, &writable(0x10), seen, &reader.lock()).unwrap();
    (vm, root, reader)
}

/// Has two do `what` at once, of whom at most one finds something to do.
fn check(what: impl Fn(&Vm, &Announcement) + Copy + Send + Sync + 'static) {
    explore(Builder::new(), move || {
        let (vm, root, reader) = vm();
        let announced = Arc::new(vm.stage2.begin_invalidation(&gfns(5, 1)).leave());
        let act = move |vm: &Vm, announced: &Announcement| {
            what(vm, announced);
            assert_eq!(vm.world.tlb.0.load(Ordering::Relaxed), 1, "TLBs remember it still");
        };
        let other = {
            let (vm, announced) = (Arc::clone(&vm), Arc::clone(&announced));
            thread::spawn(move || act(&vm, &announced))
        };
        act(&vm, &announced);
        other.join().unwrap();
        vm.stage2.end_invalidation(Arc::into_inner(announced).unwrap()).unwrap();
        drop((root, reader));
        vm.end();
    });
}

#[test]
fn who_finds_a_page_zapped_by_another_has_it_forgotten_when_he_is_done() {
    check(|vm, announced| vm.stage2.zap(announced, gfns(5, 1), Tables::Keep, WHOLE));
}

#[test]
fn who_finds_a_page_protected_by_another_has_it_forgotten_when_he_is_done() {
    check(|vm, _| vm.stage2.write_protect(gfns(5, 1), WHOLE, |_, _| ()));
}
