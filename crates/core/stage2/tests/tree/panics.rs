//! A caller's code that panics while a range is worked on.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mayfly_platform::address::Gfn;
use mayfly_platform::tlb::Scope;
use mayfly_stage2::{Ept, Leaf, Level, Role};

use crate::common::World;
use crate::common::granted::MapsAny;
use crate::{READ_WRITE, UNHURRIED, gfns, leaf};

/// Something that takes rights away, and calls the test's code when it has taken some.
type Way = fn(&World<Ept>);

/// Marks of all, 64 at a time; panics when it is asked about the second of two tables, after it was asked about the first.
fn word(index: usize, asked: &Cell<bool>) -> (Gfn, u64) {
    let first = Gfn::new(64 * index as u64);
    if asked.get() {
        meant(&(first..first));
    }
    asked.set(asked.get() || index == 0);
    (first, u64::MAX)
}

/// Panics when it is asked about the second of two tables.
fn meant(gfns: &std::ops::Range<Gfn>) -> bool {
    assert!(gfns.start.get() < Level::MIB2.pages(), "as it was told to");
    true
}

const WAYS: [Way; 3] = [
    |world| {
        world.stage2.write_protect(gfns(0..1024), UNHURRIED, |_, _| panic!("as it was told to"));
    },
    |world| {
        let asked = Cell::new(false);
        world
            .stage2
            .write_protect_marked(gfns(0..1024), UNHURRIED, 16, |index| word(index, &asked));
    },
    |world| {
        let each = |_, _| ();
        world.stage2.take_written_those(gfns(0..1024), UNHURRIED, |gfns| meant(&gfns), each);
    },
];

#[test]
fn what_was_taken_away_before_a_callers_code_panics_is_forgotten_by_the_tlbs() {
    for way in WAYS {
        let world = World::<Ept>::new(64);
        let vcpu = world.vcpu(Role::MARKED.get());
        for gfn in [7, 7 + Level::MIB2.pages()] {
            let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
            let what = Leaf { written: true, ..leaf(gfn, READ_WRITE) };
            vcpu.root.map(Gfn::new(gfn), Level::PAGE, &what, seen, &section).unwrap();
        }
        world.platform.tlbs.take_issued();
        catch_unwind(AssertUnwindSafe(|| way(&world))).unwrap_err();
        assert_eq!(world.platform.tlbs.take_issued(), [(vcpu.vmid, Scope::All)]);
        drop(vcpu);
        world.destroy();
    }
}

/// Blocks that are put in place together.
const BATCH: u64 = 32;

#[test]
fn tables_whose_blocks_are_there_are_forgotten_and_freed_where_the_host_panics_at_the_next() {
    let world = World::<Ept>::new(128);
    let vcpu = world.vcpu(0);
    let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
    let blocks = (0..=BATCH).map(|block| block * Level::MIB2.pages());
    for gfn in blocks.clone().map(|first| first + 7) {
        vcpu.root.map(Gfn::new(gfn), Level::PAGE, &leaf(gfn, READ_WRITE), seen, &section).unwrap();
    }
    world.platform.tlbs.take_issued();
    let grants = blocks.map(|first| {
        assert!(first < BATCH * Level::MIB2.pages(), "as it was told to");
        let block = leaf(first, READ_WRITE);
        Some(vcpu.root.grant_any(Gfn::new(first), Level::MIB2, &block, seen, &section))
    });
    catch_unwind(AssertUnwindSafe(|| vcpu.root.collapse(UNHURRIED, grants))).unwrap_err();
    assert_eq!(world.platform.tlbs.take_issued().len(), 1);
    let level = vcpu.root.translate(Gfn::new(7), &section).map(|(level, _)| level);
    assert_eq!(level, Some(Level::MIB2));
    drop(section);
    drop(vcpu);
    world.destroy();
}
