//! Grants that are forgotten: nothing is mapped by one, its frame is in no table, and nobody waits for it.

#![expect(
    clippy::forget_non_drop,
    reason = "what is forgotten is to do nothing, also when it gets a drop one day"
)]

use std::mem::forget;
use std::ops::RangeInclusive;

use mayfly_platform::Op;
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_platform::testing::threads::ends;
use mayfly_stage2::{Format, Level, Mapped, Tables};

use crate::common::World;
use crate::common::granted::MapsAny;
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};

const PAGES: u64 = Level::MIB2.pages();

const FRAMES: usize = 64;

/// The guest's frame, and how much it was granted around it: what is mapped already, what has its table already, what
/// has none, and a block.
const GRANTED: [(u64, Level); 4] = [
    (7, Level::PAGE),
    (8, Level::PAGE),
    (5 * PAGES + 3, Level::PAGE),
    (9 * PAGES + 1, Level::MIB2),
];

/// What `number` of [`GRANTED`] gets, which begins with a frame that nothing else of these tests names.
fn frames(number: usize) -> RangeInclusive<u64> {
    let first = (100 + number as u64) * PAGES;
    first..=first + GRANTED[number].1.pages() - 1
}

/// Every word of every frame, tables and others.
fn words<F: Format>(world: &World<F>) -> Vec<u64> {
    let arena = &world.platform.arena;
    let frames = 1..=FRAMES as u64;
    frames.flat_map(|pfn| (0..WORDS).map(move |at| arena.load(Pfn::new(pfn), at))).collect()
}

/// Whether some word of some frame names one of `frames`, as a present entry of any level would.
fn is_exposed<F: Format>(world: &World<F>, frames: &RangeInclusive<u64>) -> bool {
    let named = |bits: &u64| F::decode_leaf(Level::PAGE, *bits).pfn.get();
    words(world).iter().filter(|bits| **bits != 0).any(|bits| frames.contains(&named(bits)))
}

fn is_mapped<F: Format>(world: &World<F>, gfn: u64) -> bool {
    world.root(0).translate(Gfn::new(gfn), &world.srcu.read_lock()).is_some()
}

fn map<F: Format>(world: &World<F>, gfn: u64, level: Level, pfn: u64) {
    let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
    let mapped = world.root(0).map(Gfn::new(gfn), level, &leaf(pfn, READ_WRITE), seen, &section);
    assert_eq!(mapped, Ok(Mapped::Installed), "{}", F::NAME);
}

fn a_grant_that_is_forgotten_maps_nothing_and_keeps_nobody<F: Format>() {
    ends(|| {
        let world = World::<F>::new(FRAMES);
        let vcpu = world.vcpu(0);
        map(&world, 7, Level::PAGE, 5);
        assert!(is_exposed(&world, &(5..=5)), "{}: what is mapped is found", F::NAME);
        let before = words(&world);
        let entries = world.platform.charged(Op::EntriesWritten(0));
        world.platform.tlbs.take_issued();
        {
            let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
            for (number, &(gfn, level)) in GRANTED.iter().enumerate() {
                let what = leaf(*frames(number).start(), READ_WRITE);
                let grant = || vcpu.root.grant_any(Gfn::new(gfn), level, &what, seen, &section);
                let mut granted = grant();
                forget(granted.part(Level::PAGE, READ));
                forget(granted);
                forget(grant());
            }
        }
        assert!(words(&world) == before, "{}: a table has changed", F::NAME);
        assert_eq!(world.platform.charged(Op::EntriesWritten(0)), entries);
        assert_eq!(world.platform.tlbs.take_issued(), []);
        for (number, &(gfn, _)) in GRANTED.iter().enumerate() {
            assert_eq!(is_mapped(&world, gfn), gfn == 7, "{}: {gfn}", F::NAME);
            assert!(!is_exposed(&world, &frames(number)), "{}: {gfn}", F::NAME);
        }
        // The tree goes on: others' frames come to the same places, are taken away, and readers are waited for.
        for &(gfn, level) in &GRANTED[1..] {
            map(&world, gfn, level, level.first(Gfn::new(gfn)).get());
            assert!(is_mapped(&world, gfn));
        }
        world.zap(gfns(0..u64::MAX), Tables::Free, UNHURRIED);
        assert!(GRANTED.iter().all(|(gfn, _)| !is_mapped(&world, *gfn)));
        world.srcu.synchronize();
        world.stage2.replace_roots().unwrap().finish();
        assert!((0..GRANTED.len()).all(|number| !is_exposed(&world, &frames(number))));
        drop(vcpu);
        world.destroy();
    });
}

/// A part that is forgotten takes nothing from the whole.
fn what_is_left_when_a_part_is_forgotten_is_all_of_it<F: Format>() {
    let world = World::<F>::new(FRAMES);
    let root = world.root(0);
    {
        let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
        let what = leaf(3 * PAGES, READ_WRITE);
        let mut grant = root.grant_any(Gfn::new(PAGES + 9), Level::MIB2, &what, seen, &section);
        forget(grant.part(Level::PAGE, READ));
        assert_eq!(grant.map(), Ok(Mapped::Installed));
        let found = root.translate(Gfn::new(PAGES + 9), &section);
        assert_eq!(
            found.map(|(level, leaf)| (level, leaf.pfn, leaf.permissions)),
            Some((Level::MIB2, Pfn::new(3 * PAGES), READ_WRITE,))
        );
    }
    drop(root);
    world.destroy();
}

in_formats! {
    a_grant_that_is_forgotten_maps_nothing_and_keeps_nobody
    what_is_left_when_a_part_is_forgotten_is_all_of_it
}
