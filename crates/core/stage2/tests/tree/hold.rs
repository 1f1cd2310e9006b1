//! Holders of holds: one at a time, each in its own VM.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use mayfly_platform::memory::Kept;
use mayfly_platform::testing::threads::{joined, soon};
use mayfly_stage2::{Arm, Hold, Holder, Resident, Role};

use crate::common::World;

/// A vCPU that is outside, and counts how often it was looked for.
struct Outside {
    hold: Hold,
    asked: Arc<AtomicUsize>,
    gone: Arc<AtomicUsize>,
}

impl Outside {
    fn new(asked: &Arc<AtomicUsize>, gone: &Arc<AtomicUsize>) -> Kept<Self> {
        let (asked, gone) = (Arc::clone(asked), Arc::clone(gone));
        Kept::try_new(Self { hold: Hold::new(), asked, gone }).unwrap()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the hold is a field.
unsafe impl Resident for Outside {
    fn hold(&self) -> &Hold {
        self.asked.fetch_add(1, Ordering::Relaxed);
        &self.hold
    }

    fn tell_when_out(&self) -> bool {
        false
    }
}

/// A vCPU that is in its guest, and counts how often it was asked to tell when it comes out.
struct Inside {
    hold: Hold,
    asked: AtomicUsize,
}

impl Inside {
    fn new() -> Kept<Self> {
        Kept::try_new(Self { hold: Hold::new(), asked: AtomicUsize::new(0) }).unwrap()
    }
}

// SAFETY: the hold is a field.
unsafe impl Resident for Inside {
    fn hold(&self) -> &Hold {
        &self.hold
    }

    fn tell_when_out(&self) -> bool {
        self.asked.fetch_add(1, Ordering::AcqRel);
        true
    }
}

fn panic_of<T>(work: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).err().expect("it panics");
    panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned()
}

#[test]
fn a_hold_has_one_holder_at_a_time() {
    let world = World::<Arm<40>>::new(8);
    let vcpu = Outside::new(&Arc::default(), &Arc::default());
    let holder = world.stage2.register_holder(vcpu.handle()).unwrap();
    let again = || world.stage2.register_holder(vcpu.handle());
    assert_eq!(panic_of(again), "the hold has a holder");
    drop(holder);
    drop(again().unwrap());
    drop(again().unwrap());
    world.destroy();
}

#[test]
fn a_vcpu_whose_holder_is_gone_is_looked_for_no_more_and_kept_by_nobody() {
    let world = World::<Arm<40>>::new(8);
    drop(world.root(0));
    let (asked, gone) = (Arc::default(), Arc::default());
    let vcpu = Outside::new(&asked, &gone);
    let holder = world.stage2.register_holder(vcpu.handle()).unwrap();
    let looks = || {
        let before = asked.load(Ordering::Relaxed);
        world.stage2.replace_roots().unwrap().finish();
        asked.load(Ordering::Relaxed) - before
    };
    assert_eq!(looks(), 1);
    drop(holder);
    assert_eq!(looks(), 0);
    drop(vcpu);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    world.destroy();
}

#[test]
fn a_holder_enters_no_other_vms_guest() {
    let world = World::<Arm<40>>::new(8);
    let (other, srcu) = world.another_vm();
    drop((world.root(0), other.root(Role::MAIN, &srcu.read_lock()).unwrap()));
    let vcpu = Outside::new(&Arc::default(), &Arc::default());
    let mut holder = world.stage2.register_holder(vcpu.handle()).unwrap();
    let enter = || drop(holder.enter(&other, Role::MAIN));
    assert_eq!(panic_of(enter), "the holder is one of another VM");
    assert!(holder.enter(&world.stage2, Role::MAIN).is_some());
    drop((holder, vcpu));
    other.retire();
    world.destroy();
}

/// It is woken by the first, and looks again.
#[test]
fn who_replaces_roots_waits_for_each_of_the_vcpus_that_are_in_their_guests() {
    let world = Arc::new(World::<Arm<40>>::new(8));
    drop(world.root(0));
    let vcpus = [Inside::new(), Inside::new()];
    let holders = vcpus.each_ref().map(|vcpu| world.stage2.register_holder(vcpu.handle()));
    let mut holders = holders.map(Result::unwrap);
    let enter = |holder| Some(Holder::enter(holder, &world.stage2, Role::MAIN).unwrap());
    let mut in_guest = holders.each_mut().map(enter);
    let is_finished = Arc::new(AtomicBool::new(false));
    let replacer = {
        let (world, is_finished) = (Arc::clone(&world), Arc::clone(&is_finished));
        thread::spawn(move || {
            world.stage2.replace_roots().unwrap().finish();
            is_finished.store(true, Ordering::Release);
        })
    };
    let is_asked = |vcpu: usize| vcpus[vcpu].asked.load(Ordering::Acquire) > 0;
    for (vcpu, held) in in_guest.iter_mut().enumerate() {
        soon(|| is_asked(vcpu) || is_finished.load(Ordering::Acquire));
        assert!(is_asked(vcpu), "it is finished while a vCPU is in its guest");
        assert!(!is_finished.load(Ordering::Acquire));
        *held = None;
        world.stage2.came_out();
    }
    joined(replacer);
    drop(in_guest);
    drop(holders);
    Arc::into_inner(world).unwrap().destroy();
}
