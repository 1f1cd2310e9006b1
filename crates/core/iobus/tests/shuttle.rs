//! The bus under shuttle: more vCPUs, writers and changes than loom can go through, in schedules drawn at random and by
//! probabilistic concurrency testing. Sequentially consistent, so this is about schedules; loom is about memory orders.
//!
//! A device that was dropped is marked so, and no vCPU finds a marked one. Each is dropped once, and all of them are in
//! the end. Who is never woken is a deadlock, which shuttle reports.

#![cfg(mayfly_shuttle)]

use std::sync::Arc as StdArc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};

use mayfly_iobus::{Error, IoBus, IoRange, Ioeventfd, LastHit, Relocation, Replaced, WriteHit};
use mayfly_platform::{Model, Platform, check_schedules};
use mayfly_srcu::{Config, Limits, Section, Srcu};

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_schedules(4_000, 2_000, model);
}

struct Device {
    id: u64,
    dropped: Arc<AtomicBool>,
    living: Arc<AtomicUsize>,
}

impl Device {
    fn new(id: u64, living: &Arc<AtomicUsize>) -> Self {
        living.fetch_add(1, Ordering::Relaxed);
        Self { id, dropped: Arc::new(AtomicBool::new(false)), living: Arc::clone(living) }
    }

    /// Looks at the device for a while.
    fn id(&self) -> u64 {
        for _ in 0..2 {
            assert!(!self.dropped.load(Ordering::Relaxed), "found after its drop");
        }
        self.id
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        assert!(!self.dropped.swap(true, Ordering::Relaxed), "dropped twice");
        self.living.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct World {
    domain: Srcu,
    bus: Arc<IoBus<Device>>,
    living: Arc<AtomicUsize>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let platform: StdArc<dyn Platform> = StdArc::new(Model::new());
        let config = Config { limits, ..Config::default() };
        let domain = Srcu::try_new(StdArc::clone(&platform), config).unwrap();
        let bus = Arc::new(IoBus::try_new(&domain, platform).unwrap());
        Self { domain, bus, living: Arc::new(AtomicUsize::new(0)) }
    }

    fn device(&self, id: u64) -> Device {
        Device::new(id, &self.living)
    }

    /// Two lookups, whose devices are looked at together.
    fn look(&self, section: &impl Section, last: &mut LastHit) {
        let read = self.bus.find(section, last, at(0).start, 1);
        let write = self.bus.find_write(section, last, at(1).start, 4, 0);
        if let Some(hit) = read {
            hit.device.id();
        }
        match write {
            Some(WriteHit::Eventfd(device)) => assert_eq!(device.id(), BELL_ID),
            Some(WriteHit::Device(hit)) => assert_ne!(hit.device.id(), BELL_ID),
            None => {}
        }
    }

    fn vcpu(&self) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || {
            let reader = world.domain.reader().unwrap();
            let mut last = LastHit::default();
            for _ in 0..2 {
                world.look(&reader.lock(), &mut last);
            }
        })
    }

    /// Everything is freed once the bus is.
    fn end(self) {
        self.domain.barrier();
        let Self { domain, bus, living } = self;
        drop(Arc::try_unwrap(bus).expect("the threads have ended"));
        domain.barrier();
        assert_eq!(living.load(Ordering::Relaxed), 0);
    }
}

const BELL_ID: u64 = 99;

/// Place `n`.
fn at(n: u64) -> IoRange {
    IoRange { start: n * 8, len: 8 }
}

fn bell(n: u64) -> Ioeventfd {
    Ioeventfd { address: n * 8, len: 4, datamatch: None }
}

/// Disposes of what a change replaced, if it was not refused.
fn dispose<E>(replaced: Result<Replaced<Device>, E>) {
    let Ok(replaced) = replaced else { return };
    match thread_rng().gen_range(0..5) {
        0 => replaced.defer(),
        1 => replaced.defer_expedited(),
        2 => drop(replaced.synchronize()),
        3 => drop(replaced.synchronize_expedited()),
        _ => {
            if let Err(refused) = replaced.try_defer() {
                drop(refused.synchronize_expedited());
            }
        }
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A change that may meet others' changes, and is then refused.
fn change(world: &World, id: u64) {
    let from = thread_rng().gen_range(0..3);
    let to = thread_rng().gen_range(0..3);
    match thread_rng().gen_range(0..5) {
        0 => dispose(world.bus.insert(at(to), world.device(id))),
        1 => dispose(world.bus.remove(at(from))),
        2 => {
            let moved = Relocation::Device { from: at(from), to: at(to) };
            dispose(world.bus.relocate(&[moved]));
        }
        3 => {
            let moved = Relocation::Eventfd { from: bell(1), to: bell(2) };
            dispose(world.bus.relocate(&[moved]));
        }
        _ => {
            let edited = world.bus.edit(|edit| {
                edit.remove(at(from))?;
                edit.insert(at(to), world.device(id))?;
                edit.remove_eventfd(bell(1))?;
                edit.insert_eventfd(bell(1), world.device(BELL_ID))?;
                Ok::<_, Error>(())
            });
            dispose(edited.map(|((), replaced)| replaced));
        }
    }
}

fn writer(world: &World, first: u64) -> JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || (first..first + 3).for_each(|id| change(&world, id)))
}

#[test]
fn whatever_writers_change_no_vcpu_finds_a_device_that_was_dropped() {
    check(|| {
        let world = World::new(Limits::default());
        world.bus.register(at(0), world.device(1)).unwrap();
        world.bus.register_eventfd(bell(1), world.device(BELL_ID)).unwrap();
        let threads = [world.vcpu(), world.vcpu(), writer(&world, 10), writer(&world, 20)];
        join(threads);
        world.end();
    });
}

#[test]
fn the_same_holds_where_everything_comes_at_the_hard_bound() {
    check(|| {
        let limits = Limits { soft_count: 0, hard_count: 1, ..Limits::default() };
        let world = World::new(limits);
        world.bus.register(at(0), world.device(1)).unwrap();
        world.bus.register_eventfd(bell(1), world.device(BELL_ID)).unwrap();
        let threads = [world.vcpu(), writer(&world, 10), writer(&world, 20)];
        join(threads);
        world.end();
    });
}

#[test]
fn vcpus_that_move_a_device_from_inside_their_sections_wait_for_nobody_who_waits_for_them() {
    check(|| {
        let limits = Limits { soft_count: 0, hard_count: 1, ..Limits::default() };
        let world = World::new(limits);
        world.bus.register(at(0), world.device(1)).unwrap();
        let mover = |to: u64| {
            let world = world.clone();
            thread::spawn(move || {
                let reader = world.domain.reader().unwrap();
                for _ in 0..2 {
                    let section = reader.lock();
                    let moved = Relocation::Device { from: at(0), to: at(to) };
                    match world.bus.try_relocate(&[moved]) {
                        Ok(()) => {
                            let back = Relocation::Device { from: at(to), to: at(0) };
                            let moved_back = world.bus.try_relocate(&[back]);
                            assert!([Ok(()), Err(Error::AtBound)].contains(&moved_back));
                        }
                        Err(error) => {
                            assert!([Error::AtBound, Error::NoDevice(at(0))].contains(&error));
                        }
                    }
                    world.look(&section, &mut LastHit::default());
                }
            })
        };
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                // Waits for the sections of those who move.
                world.bus.register(at(5), world.device(5)).unwrap();
                assert_eq!(world.bus.unregister(at(5)).unwrap().id(), 5);
            })
        };
        let threads = [mover(1), mover(2), other];
        join(threads);
        assert_eq!(world.living.load(Ordering::Relaxed), 1);
        world.end();
    });
}
