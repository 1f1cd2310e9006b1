//! The requests of a vCPU under loom: every interleaving, and every value that a load may return.
//!
//! A root that is retired is mutated without synchronisation, so loom fails the model if a vCPU could still be in the
//! guest on it. Whoever waits for what never comes, an interrupt included, is a deadlock, which loom reports.

#![cfg(mayfly_loom)]

// The code itself, which the crate keeps to itself.
#[path = "../src/requests.rs"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod requests;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use mayfly_platform::{Model, Platform};
use requests::{Requests, Whereabouts};

const CPU: u32 = 5;

/// A vCPU's requests, its CPU's interrupt, the word that it sleeps on while it waits for an invalidation, and the roots
/// that it may run on one after the other.
struct World {
    platform: Model,
    requests: Requests,
    interrupted: Mutex<bool>,
    interrupt: Condvar,
    ended: AtomicU32,
    /// Changes when the reclaimer is told that the vCPU has come out.
    told: AtomicU32,
    present: AtomicUsize,
    roots: [UnsafeCell<u32>; 2],
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            platform: Model::new(),
            requests: Requests::new(),
            interrupted: Mutex::new(false),
            interrupt: Condvar::new(),
            ended: AtomicU32::new(0),
            told: AtomicU32::new(0),
            present: AtomicUsize::new(0),
            roots: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    /// What whoever asks does about where the vCPU is.
    fn bring_out(&self, whereabouts: Whereabouts) {
        match whereabouts {
            Whereabouts::Awake => {}
            Whereabouts::Cpu(cpu) => {
                assert_eq!(cpu, CPU);
                *self.interrupted.lock().unwrap() = true;
                self.interrupt.notify_all();
            }
            Whereabouts::Asleep => {
                self.ended.fetch_add(1, Ordering::Release);
                self.platform.wake(&self.ended);
            }
        }
    }

    fn kick(&self) {
        self.bring_out(self.requests.ask_exit(&self.platform));
    }

    /// A guest that only an interrupt brings out.
    fn deaf_guest(&self) {
        // Not masked yet: what comes before is taken here, and gone.
        *self.interrupted.lock().unwrap() = false;
        if self.requests.any() {
            return;
        }
        let mut interrupted = self.interrupted.lock().unwrap();
        while !*interrupted {
            interrupted = self.interrupt.wait(interrupted).unwrap();
        }
    }

    /// Waits for an invalidation that does not end.
    fn wait_invalidation(&self) -> bool {
        self.requests.asleep(|| {
            loop {
                let seen = self.ended.load(Ordering::Acquire);
                if self.requests.any() {
                    break;
                }
                while self.ended.load(Ordering::Acquire) == seen {
                    self.platform.wait(&self.ended, seen);
                }
            }
        })
    }

    /// Replaces the root, has the vCPU out of the old one, and destroys that.
    fn replace_root(&self) {
        self.present.store(1, Ordering::Relaxed);
        self.bring_out(self.requests.ask_reload(&self.platform));
        self.requests.wait_outside(&self.platform);
        // SAFETY: what the model is to find out; loom checks it.
        self.roots[0].with_mut(|root| unsafe { *root += 1 });
    }

    /// What `Vcpu::run` does around the guest.
    fn enter(&self, root: &mut usize, guest: impl FnOnce()) {
        if self.requests.take_reload() {
            *root = self.present.load(Ordering::Relaxed);
        }
        // [enter]; what is held is another model's.
        let hold = || Some(fence(Ordering::SeqCst));
        let left = match self.requests.enter_guest(CPU, &self.platform, hold) {
            Ok(()) => {
                // SAFETY: as above.
                self.roots[*root].with(|root| unsafe { *root });
                guest();
                self.requests.leave_guest(&self.platform)
            }
            Err(left) => left,
        };
        if left.tells {
            self.told.fetch_add(1, Ordering::Release);
            self.platform.wake(&self.told);
        }
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
            thread::spawn(move || world.kick())
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
        world.kick();
        vcpu.join().unwrap();
    });
}

/// A vCPU that goes into a guest that only an interrupt brings out, until it was kicked.
fn deaf(world: &Arc<World>) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let mut root = 0;
        while !world.requests.take_exit() {
            world.enter(&mut root, || world.deaf_guest());
        }
    })
}

#[test]
fn an_interrupt_brings_out_who_does_not_look() {
    loom::model(|| {
        let world = World::new();
        let vcpu = deaf(&world);
        world.kick();
        vcpu.join().unwrap();
    });
}

#[test]
fn a_root_that_only_an_interrupt_takes_a_vcpu_off_is_not_in_use_when_it_was_waited_for() {
    loom::model(|| {
        let world = World::new();
        let vcpu = deaf(&world);
        world.replace_root();
        world.kick();
        vcpu.join().unwrap();
    });
}

#[test]
fn a_kick_brings_out_who_waits_for_an_invalidation_and_keeps_out_who_is_about_to() {
    loom::model(|| {
        let world = World::new();
        let vcpu = {
            let world = Arc::clone(&world);
            thread::spawn(move || while world.wait_invalidation() {})
        };
        world.kick();
        vcpu.join().unwrap();
        assert!(world.requests.take_exit());
    });
}

#[test]
fn who_wants_to_be_told_that_a_vcpu_is_out_is_told_or_finds_it_out() {
    loom::model(|| {
        let world = World::new();
        let vcpu = stays(&world, 2);
        let told = world.told.load(Ordering::Acquire);
        if world.requests.tell_when_out() {
            while world.told.load(Ordering::Acquire) == told {
                world.platform.wait(&world.told, told);
            }
        }
        vcpu.join().unwrap();
    });
}
