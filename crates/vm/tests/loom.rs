//! The requests of a vCPU under loom: every interleaving, and every value that a load may return.
//!
//! A root that is retired is mutated without synchronisation, so loom fails the model if a vCPU could still be in the
//! guest on it. Whoever waits for what never comes is a deadlock, which loom reports.

#![cfg(mayfly_loom)]

// The code itself, which the crate keeps to itself.
#[path = "../src/requests.rs"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod requests;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use mayfly_platform::Model;
use requests::Requests;

/// A vCPU's requests, and the roots that it may run on one after the other.
struct World {
    platform: Model,
    requests: Requests,
    present: AtomicUsize,
    roots: [UnsafeCell<u32>; 2],
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            platform: Model::new(),
            requests: Requests::new(),
            present: AtomicUsize::new(0),
            roots: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    /// Replaces the root, has the vCPU out of the old one, and destroys that.
    fn replace_root(&self) {
        self.present.store(1, Ordering::Relaxed);
        self.requests.ask_reload(&self.platform);
        self.requests.wait_outside(&self.platform);
        // SAFETY: what the model is to find out; loom checks it.
        self.roots[0].with_mut(|root| unsafe { *root += 1 });
    }

    /// What `Vcpu::run` does around the guest.
    fn enter(&self, root: &mut usize, guest: impl FnOnce()) -> bool {
        if self.requests.take_reload() {
            *root = self.present.load(Ordering::Relaxed);
        }
        let entered = self.requests.enter_guest(&self.platform);
        if entered {
            // SAFETY: as above.
            self.roots[*root].with(|root| unsafe { *root });
            guest();
            self.requests.leave_guest(&self.platform);
        }
        entered
    }
}

/// A vCPU that goes into the guest so many times.
fn stays(world: &Arc<World>, count: usize) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let mut root = 0;
        for _ in 0..count {
            world.enter(&mut root, || ());
        }
    })
}

#[test]
fn a_root_is_not_in_use_when_it_was_waited_for() {
    loom::model(|| {
        let world = World::new();
        let vcpu = stays(&world, 3);
        world.replace_root();
        vcpu.join().unwrap();
    });
}

#[test]
fn two_who_ask_are_both_right() {
    loom::model(|| {
        let world = World::new();
        let kicker = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.requests.ask_exit(&world.platform))
        };
        let vcpu = stays(&world, 2);
        world.replace_root();
        for thread in [kicker, vcpu] {
            thread.join().unwrap();
        }
        assert!(world.requests.take_exit(), "nobody has taken it");
    });
}

#[test]
fn a_vcpu_that_stays_in_the_guest_until_it_is_asked_comes_out_once_and_is_waited_for_no_longer() {
    loom::model(|| {
        let world = World::new();
        let vcpu = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let mut root = 0;
                while !world.requests.take_exit() {
                    world.enter(&mut root, || world.requests.wait(&world.platform));
                }
            })
        };
        world.replace_root();
        // Only now: if the stay on the new root were waited for as well, nothing would ever end it.
        world.requests.ask_exit(&world.platform);
        vcpu.join().unwrap();
    });
}
