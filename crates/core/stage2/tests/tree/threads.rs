//! vCPUs that fault, while the host takes memory away, slots come and go, and roots are replaced.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use mayfly_platform::address::Gfn;
use mayfly_stage2::{Arm, Ept, Format, Level, Mapped, RootRef, Slice, Tables};

use crate::common::granted::MapsAny;
use crate::common::{self, Vcpu, World};
use crate::{READ, READ_WRITE, gfns, leaf};
use mayfly_platform::testing::threads::{Over, joined};

const PAGES: u64 = Level::MIB2.pages();

/// Numbers that are random enough, and the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Slices of very few entries, so that operations meet in the middle.
fn slice(random: &mut Random) -> Slice {
    Slice { entries: [1, 3, 64, 1 << 16][random.below(4) as usize], ..Slice::default() }
}

/// The host's side: which frame is behind each guest frame, in regions of 2 MiB.
struct Host {
    frames: Vec<AtomicU64>,
}

impl Host {
    fn new(regions: u64) -> Self {
        Self { frames: (0..regions * PAGES).map(|gfn| AtomicU64::new(PAGES + gfn)).collect() }
    }

    fn frame(&self, gfn: u64) -> u64 {
        self.frames[gfn as usize].load(Ordering::Acquire)
    }

    fn set(&self, gfn: u64, pfn: u64) {
        self.frames[gfn as usize].store(pfn, Ordering::Release);
    }

    /// The block that `gfn` can be mapped in, if the frames behind it lie side by side.
    fn block(&self, gfn: u64) -> Option<u64> {
        let first = Level::MIB2.first(Gfn::new(gfn)).get();
        let block = self.frame(first);
        let beside = |gfn| self.frame(gfn) == block + (gfn - first);
        (Level::MIB2.is_aligned(block) && (first..first + PAGES).all(beside)).then_some(block)
    }
}

/// How faults went.
#[derive(Default)]
struct Faults {
    installed: AtomicUsize,
    retried: AtomicUsize,
}

/// One fault at `gfn`, taken again until it is settled.
fn fault<F: Format>(world: &World<F>, root: &RootRef<F>, host: &Host, gfn: u64, faults: &Faults) {
    loop {
        let section = world.srcu.read_lock();
        let seen = world.stage2.sample();
        let (level, pfn) = match host.block(gfn) {
            Some(block) => (Level::MIB2, block),
            None => (Level::PAGE, host.frame(gfn)),
        };
        let mapped = root.map(Gfn::new(gfn), level, &leaf(pfn, READ_WRITE), seen, &section);
        drop(section);
        if mapped.unwrap() != Mapped::Retry {
            faults.installed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        faults.retried.fetch_add(1, Ordering::Relaxed);
        world.stage2.wait_invalidation(&gfns(gfn..gfn + 1));
    }
}

/// Runs `vcpus` threads that fault anywhere until `work` returns.
fn while_faulting<F: Format, T>(
    world: &World<F>,
    host: &Host,
    vcpus: u64,
    faults: &Faults,
    work: impl FnOnce() -> T,
) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 1..=vcpus {
            let over = &over;
            scope.spawn(move || {
                let _over = Over(over);
                let vcpu = world.vcpu(0);
                let mut random = Random(number);
                while !over.load(Ordering::Relaxed) {
                    let gfn = random.below(host.frames.len() as u64);
                    fault(world, &vcpu.root, host, gfn, faults);
                }
            });
        }
        let _over = Over(&over);
        work()
    })
}

fn translate<F: Format>(world: &World<F>, root: &RootRef<F>, gfn: u64) -> Option<u64> {
    let (level, leaf) = root.translate(Gfn::new(gfn), &world.srcu.read_lock())?;
    Some(leaf.pfn.get() + (gfn & (level.pages() - 1)))
}

/// The host gives other frames to what it likes, zapping it in between: while it does, nothing is mapped there, and
/// after it has, nothing but the new frames.
fn no_frame_is_used_after_it_was_taken_away<F: Format>() {
    const REGIONS: u64 = 3;
    let world = World::<F>::new(2000);
    let host = Host::new(REGIONS);
    let faults = Faults::default();
    let next_block = AtomicU64::new(100);
    let change = |region: u64| {
        let root = world.root(0);
        let mut random = Random(region + 77);
        let first = region * PAGES;
        for _ in 0..100 {
            let block = next_block.fetch_add(1, Ordering::Relaxed) * PAGES;
            let range: Range<u64> = match random.below(3) {
                0 => first..first + PAGES,
                1 => {
                    let from = random.below(PAGES);
                    first + from..first + from + 1 + random.below(PAGES - from)
                }
                _ => {
                    let gfn = first + random.below(PAGES);
                    gfn..gfn + 1
                }
            };
            let tables = [Tables::Free, Tables::Keep][random.below(2) as usize];
            let announced = world.stage2.begin_invalidation(&gfns(range.clone()));
            world.stage2.zap(&announced, gfns(range.clone()), tables, slice(&mut random));
            for gfn in range.clone() {
                assert_eq!(translate(&world, &root, gfn), None);
                host.set(gfn, block + (gfn - first));
            }
            drop(announced);
            for gfn in range {
                let found = translate(&world, &root, gfn);
                assert!(found.is_none_or(|pfn| pfn == host.frame(gfn)), "{gfn} is at {found:?}");
            }
        }
    };
    while_faulting(&world, &host, 3, &faults, || {
        thread::scope(|scope| {
            for region in 0..REGIONS {
                let change = &change;
                scope.spawn(move || change(region));
            }
            // Operations that nobody announces, over everything.
            let mut random = Random(5);
            for _ in 0..100 {
                world.stage2.write_protect(gfns(0..u64::MAX), slice(&mut random), |_, _| ());
                world.stage2.age(gfns(0..u64::MAX), slice(&mut random), |_, _| ());
            }
        });
    });
    assert!(faults.installed.load(Ordering::Relaxed) > 0);
    let root = world.root(0);
    for gfn in 0..REGIONS * PAGES {
        assert!(translate(&world, &root, gfn).is_none_or(|pfn| pfn == host.frame(gfn)));
    }
    drop(root);
    world.destroy();
}

#[test]
fn no_frame_is_used_after_it_was_taken_away_arm() {
    no_frame_is_used_after_it_was_taken_away::<Arm<40>>();
}

#[test]
fn no_frame_is_used_after_it_was_taken_away_ept() {
    no_frame_is_used_after_it_was_taken_away::<Ept>();
}

/// The slot is taken away and given back elsewhere: between the two nothing of it is mapped, however late a fault that
/// had found it comes.
fn nothing_of_a_slot_is_mapped_after_it_was_deleted<F: Format>() {
    let world = World::<F>::new(2000);
    let faults = AtomicUsize::new(0);
    // Where the slot's memory begins; 0 where there is none.
    let slot = AtomicU64::new(PAGES);
    let over = AtomicBool::new(false);
    let size = 2 * PAGES;
    thread::scope(|scope| {
        for number in 1..=3 {
            let (world, slot, over, faults) = (&world, &slot, &over, &faults);
            scope.spawn(move || {
                let _over = Over(over);
                let vcpu = world.vcpu(0);
                let mut random = Random(number);
                while !over.load(Ordering::Relaxed) {
                    let gfn = random.below(size);
                    let section = world.srcu.read_lock();
                    let seen = world.stage2.sample();
                    let base = slot.load(Ordering::Acquire);
                    if base == 0 {
                        continue;
                    }
                    let level = [Level::PAGE, Level::MIB2][random.below(2) as usize];
                    let gfn = level.first(Gfn::new(gfn));
                    let what = leaf(base + gfn.get(), READ_WRITE);
                    let mapped = vcpu.root.map(gfn, level, &what, seen, &section).unwrap();
                    if mapped != Mapped::Retry {
                        faults.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let _over = Over(&over);
        let root = world.root(0);
        let mut random = Random(99);
        for turn in 2..120 {
            world.stage2.change_slots(&gfns(0..size), || slot.store(0, Ordering::Release));
            world.zap(gfns(0..size), Tables::Free, slice(&mut random));
            for gfn in 0..size {
                assert_eq!(translate(&world, &root, gfn), None);
            }
            world
                .stage2
                .change_slots(&gfns(0..size), || slot.store(turn * PAGES, Ordering::Release));
            let before = faults.load(Ordering::Relaxed);
            while turn % 16 == 0 && faults.load(Ordering::Relaxed) < before + 100 {
                assert!(!over.load(Ordering::Relaxed));
                thread::yield_now();
            }
        }
    });
    world.destroy();
}

#[test]
fn nothing_of_a_slot_is_mapped_after_it_was_deleted_arm() {
    nothing_of_a_slot_is_mapped_after_it_was_deleted::<Arm<48>>();
}

#[test]
fn nothing_of_a_slot_is_mapped_after_it_was_deleted_ept() {
    nothing_of_a_slot_is_mapped_after_it_was_deleted::<Ept>();
}

#[test]
fn threads_that_want_the_root_of_a_role_at_once_get_the_same() {
    for _ in 0..200 {
        let world = World::<Ept>::new(16);
        let barrier = Barrier::new(4);
        let tops = Mutex::new(BTreeSet::new());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let root = world.root(2);
                    tops.lock().unwrap().insert(root.top().get());
                });
            }
        });
        assert_eq!(tops.into_inner().unwrap().len(), 1);
        assert_eq!(world.live(), 1);
        world.destroy();
    }
}

#[test]
fn vcpus_that_load_replaced_roots_share_the_present_one_and_leave_none_behind() {
    const VCPUS: usize = 3;
    let world = World::<Ept>::new(2000);
    let turn = AtomicUsize::new(0);
    let loaded: Vec<_> = (0..VCPUS).map(|_| AtomicUsize::new(0)).collect();
    let over = AtomicBool::new(false);
    let reclaimer = world.reclaimer.clone();
    let server = thread::spawn(move || reclaimer.serve(Slice { entries: 50, ..Slice::default() }));
    thread::scope(|scope| {
        for (number, loaded) in loaded.iter().enumerate() {
            let (world, turn, over) = (&world, &turn, &over);
            scope.spawn(move || {
                let _over = Over(over);
                let mut vcpu: Vcpu<_> = world.vcpu(0);
                let mut random = Random(number as u64 + 1);
                while !over.load(Ordering::Relaxed) {
                    let wanted = turn.load(Ordering::Acquire);
                    if loaded.load(Ordering::Relaxed) != wanted {
                        vcpu.load(world.root(0));
                        loaded.store(wanted, Ordering::Release);
                    }
                    let gfn = random.below(8 * PAGES);
                    let section = world.srcu.read_lock();
                    let (what, seen) = (leaf(gfn, READ), world.stage2.sample());
                    vcpu.root.map(Gfn::new(gfn), Level::PAGE, &what, seen, &section).unwrap();
                }
            });
        }
        let _over = Over(&over);
        drop(world.root(0));
        for wanted in 1..=200 {
            let retiring = world.stage2.replace_roots().unwrap();
            turn.store(wanted, Ordering::Release);
            {
                let section = world.srcu.read_lock();
                assert_eq!(world.stage2.roots(&section).count(), 2);
            }
            while loaded.iter().any(|loaded| loaded.load(Ordering::Acquire) != wanted) {
                assert!(!over.load(Ordering::Relaxed));
                thread::yield_now();
            }
            retiring.finish();
            let section = world.srcu.read_lock();
            assert_eq!(world.stage2.roots(&section).count(), 1);
            drop(section);
            world.zap(gfns(0..PAGES), Tables::Free, Slice::default());
        }
    });
    world.reclaimer.stop();
    joined(server);
    world.destroy();
}

/// However often vCPUs fault on what is being zapped, each gets in the zapper's way once for each invalidation at most,
/// and is refused a few times at most.
#[test]
fn a_zapper_meets_each_refaulting_vcpu_once_an_invalidation_at_most() {
    const VCPUS: usize = 3;
    const ROUNDS: usize = 400;
    let world = World::<Arm<40>>::new(2000);
    let host = Host::new(1);
    // Pages, not blocks.
    for gfn in 0..PAGES {
        host.set(gfn, 2 * gfn);
    }
    let faults = Faults::default();
    while_faulting(&world, &host, VCPUS as u64, &faults, || {
        let mut random = Random(3);
        for round in 0..ROUNDS {
            let tables = [Tables::Free, Tables::Keep][round % 2];
            let announced = world.stage2.begin_invalidation(&gfns(0..PAGES));
            let before = common::own_frozen_waits();
            world.stage2.zap(&announced, gfns(0..PAGES), tables, slice(&mut random));
            assert!(common::own_frozen_waits() - before <= VCPUS);
            drop(announced);
        }
    });
    let retried = faults.retried.load(Ordering::Relaxed);
    // Refused when it comes too early, and, where its wait ends for another reason, once more.
    assert!(retried <= 3 * VCPUS * (ROUNDS + 1), "{retried} retries");
    world.destroy();
}

/// The same where they come again at once: each freezes the entry at most once, as it is refused before it does.
#[test]
fn a_zapper_meets_each_vcpu_that_does_not_wait_once_an_invalidation_at_most() {
    const VCPUS: usize = 3;
    let world = World::<Arm<40>>::new(2000);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..VCPUS {
            let (world, over) = (&world, &over);
            scope.spawn(move || {
                let _over = Over(over);
                let vcpu = world.vcpu(0);
                while !over.load(Ordering::Relaxed) {
                    let section = world.srcu.read_lock();
                    let (what, seen) = (leaf(9, READ_WRITE), world.stage2.sample());
                    vcpu.root.map(Gfn::new(7), Level::PAGE, &what, seen, &section).unwrap();
                }
            });
        }
        let _over = Over(&over);
        for _ in 0..400 {
            let announced = world.stage2.begin_invalidation(&gfns(0..PAGES));
            let before = common::own_frozen_waits();
            for _ in 0..50 {
                world.stage2.zap(&announced, gfns(0..PAGES), Tables::Keep, Slice::default());
            }
            assert!(common::own_frozen_waits() - before <= VCPUS);
            drop(announced);
        }
    });
    world.destroy();
}
