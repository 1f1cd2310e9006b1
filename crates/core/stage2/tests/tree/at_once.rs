//! Tables that are freed by who destroys their VM.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use mayfly_platform::testing::threads::joined;
use mayfly_stage2::{Ept, Reclaimed};

use crate::UNHURRIED;
use crate::common::{World, role};
use crate::reclaim::grow;

#[test]
fn few_tables_are_freed_by_who_destroys_their_vm_and_more_are_left() {
    let frames = {
        let world = World::<Ept>::new(100);
        grow(&world, 0);
        world.live()
    };
    for (at_once, left) in [(frames - 1, frames), (frames, 0)] {
        let world = World::<Ept>::freeing_at_once(100, at_once);
        grow(&world, 0);
        let rung = world.reclaimer.rung().load(Ordering::Relaxed);
        world.stage2.retire();
        assert_eq!((world.live(), world.reclaimer.frames()), (left, left));
        // Nobody is woken for nothing.
        let is_rung = world.reclaimer.rung().load(Ordering::Relaxed) != rung;
        assert_eq!(is_rung, left > 0);
        world.destroy();
    }
}

#[test]
fn who_destroys_a_vm_waits_neither_for_its_vcpus_nor_for_its_readers() {
    let world = World::<Ept>::freeing_at_once(100, 100);
    grow(&world, 0);
    let vcpu = world.vcpu(0);
    let section = world.srcu.read_lock();
    let (frames, rung) = (world.live(), world.reclaimer.rung().load(Ordering::Relaxed));
    world.stage2.retire();
    assert_eq!((world.live(), world.platform.tlbs.take_issued().len()), (frames, 0));
    drop(section);
    assert_eq!(world.reclaimer.run_slice(UNHURRIED), Reclaimed::Waits);
    drop(vcpu);
    // Whoever serves the reclaimer is told.
    assert_ne!(world.reclaimer.rung().load(Ordering::Relaxed), rung);
    world.destroy();
}

#[test]
fn who_destroys_a_vm_waits_for_nobody_who_frees_another() {
    let world = Arc::new(World::<Ept>::freeing_at_once(100, 100));
    let (other, srcu) = world.another_vm();
    drop(other.root(role(0), &srcu.read_lock()).unwrap());
    let vcpu = world.vcpu(0);
    let (invalidating, invalidates) = mpsc::channel();
    let (go_on, gone_on) = mpsc::channel::<()>();
    world.platform.tlbs.on_next_issue(move || {
        invalidating.send(()).unwrap();
        let _ = gone_on.recv_timeout(Duration::from_secs(20));
    });
    world.stage2.retire();
    drop(vcpu);
    let reclaimer = Arc::clone(&world.reclaimer);
    let freeing = thread::spawn(move || reclaimer.run_slice(UNHURRIED));
    invalidates.recv_timeout(Duration::from_secs(20)).unwrap();
    let rung = world.reclaimer.rung().load(Ordering::Relaxed);
    let (done, returned) = mpsc::channel();
    let destroying = thread::spawn(move || {
        other.retire();
        done.send(other.frames()).unwrap();
    });
    assert_eq!(returned.recv_timeout(Duration::from_secs(10)), Ok(1));
    assert_ne!(world.reclaimer.rung().load(Ordering::Relaxed), rung);
    go_on.send(()).unwrap();
    joined(destroying);
    freeing.join().unwrap();
    Arc::into_inner(world).unwrap().destroy();
}
