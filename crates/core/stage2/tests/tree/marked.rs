//! Write-protecting what words of marks name, beside a model that looks at each page.

use std::collections::BTreeSet;
use std::time::Duration;

use mayfly_platform::address::Gfn;
use mayfly_stage2::{
    Arm, Entry, Ept, Format, Leaf, Level, MemoryType, Npt, Permissions, Slice, Sv39x4,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::common::World;
use crate::common::granted::MapsAny;
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};

const PAGES: u64 = Level::MIB2.pages();

/// What is mapped is in so many blocks' places.
const PLACES: u64 = 4;

/// How a place of 2 MiB is mapped.
#[derive(Clone, Debug)]
enum Place {
    Nothing,
    Block {
        writable: bool,
    },
    /// By pages: those that are mapped, of these those that are not writable.
    Pages {
        mapped: BTreeSet<u64>,
        read_only: BTreeSet<u64>,
    },
}

fn place() -> impl Strategy<Value = Place> {
    let pages = || btree_set(0..PAGES, 0..40);
    prop_oneof![
        Just(Place::Nothing),
        any::<bool>().prop_map(|writable| Place::Block { writable }),
        (pages(), pages()).prop_map(|(mapped, read_only)| Place::Pages { mapped, read_only }),
    ]
}

fn map<F: Format>(world: &World<F>, gfn: u64, level: Level, writable: bool) {
    let (stage2, section) = (&world.stage2, world.srcu.read_lock());
    let root = stage2.root(crate::common::role(0), &section).unwrap();
    let what = leaf(gfn, if writable { READ_WRITE } else { READ });
    root.map(Gfn::new(gfn), level, &what, stage2.sample(), &section).unwrap();
}

/// The pages that may be written.
fn writable<F: Format>(world: &World<F>) -> BTreeSet<u64> {
    let (vcpu, section) = (world.vcpu(0), world.srcu.read_lock());
    let is_writable = |gfn: &u64| {
        let found = vcpu.root.translate(Gfn::new(*gfn), &section);
        found.is_some_and(|(_, leaf)| leaf.permissions.contains(Permissions::WRITE))
    };
    (0..PLACES * PAGES).filter(is_writable).collect()
}

fn protects_what_is_marked<F: Format>(
    places: &[Place],
    base: u64,
    marked: &BTreeSet<u64>,
    range: std::ops::Range<u64>,
    entries: u32,
) {
    let world = World::<F>::new(64);
    let keeps_the_root = world.vcpu(0);
    for (place, first) in places.iter().zip((0..).step_by(PAGES as usize)) {
        match place {
            Place::Nothing => {}
            Place::Block { writable } => map(&world, first, Level::MIB2, *writable),
            Place::Pages { mapped, read_only } => {
                for page in mapped {
                    map(&world, first + page, Level::PAGE, !read_only.contains(page));
                }
            }
        }
    }
    let before = writable(&world);
    // A word at `base` and one each 64 frames; only those with marks are told of.
    let mut by_number = std::collections::BTreeMap::<u64, u64>::new();
    for page in marked.iter().filter(|page| **page >= base) {
        let number = (page - base) / 64;
        *by_number.entry(number).or_default() |= 1 << ((page - base) % 64);
    }
    let place = |(number, marks)| (Gfn::new(base + 64 * number), marks);
    let listed: Vec<(Gfn, u64)> = by_number.into_iter().map(place).collect();
    let slice = Slice { entries, time: Duration::from_secs(3600) };
    let stage2 = &world.stage2;
    stage2.write_protect_marked(gfns(range.clone()), slice, listed.len(), |index| listed[index]);
    let meant = |page: &u64| *page >= base && range.contains(page) && marked.contains(page);
    let expected: BTreeSet<u64> = before.into_iter().filter(|page| !meant(page)).collect();
    assert_eq!(writable(&world), expected);
    drop(keeps_the_root);
    world.destroy();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 96 }))]
    #[test]
    fn what_is_marked_and_nothing_else_loses_the_right_to_write(
        places in vec(place(), PLACES as usize),
        base in prop_oneof![Just(0_u64), 0..200_u64],
        marked in btree_set(0..PLACES * PAGES, 0..200),
        start in 0..300_u64,
        end in 1000..PLACES * PAGES + 100,
        entries in 1..200_u32,
    ) {
        protects_what_is_marked::<Ept>(&places, base, &marked, start..end, entries);
        protects_what_is_marked::<Arm<40>>(&places, base, &marked, start..end, entries);
    }
}

#[test]
fn tlbs_forget_what_was_marked_before_the_call_returns() {
    let world = World::<Arm<40>>::new(64);
    let vcpu = world.vcpu(0);
    for gfn in [3, 5, PAGES + 1] {
        map(&world, gfn, Level::PAGE, true);
        let (level, leaf) = vcpu.root.translate(Gfn::new(gfn), &world.srcu.read_lock()).unwrap();
        world.platform.tlbs.walk(vcpu.vmid, Gfn::new(gfn), level, &leaf);
    }
    let listed = [(Gfn::new(0), 1 << 3), (Gfn::new(PAGES), 1 << 1)];
    let marks = |index: usize| listed[index];
    world.stage2.write_protect_marked(gfns(0..2 * PAGES), UNHURRIED, listed.len(), marks);
    let remembered = world.platform.tlbs.remembered();
    assert!(remembered.keys().all(|(_, gfn)| gfn.get() == 5), "{remembered:?}");
    drop(vcpu);
    world.destroy();
}

#[test]
fn a_block_of_which_a_page_is_marked_is_protected_as_a_whole_without_memory_for_a_table() {
    let world = World::<Ept>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, 0, Level::MIB2, true);
    world.platform.arena.refuse_after(0);
    world.stage2.write_protect_marked(gfns(0..PAGES), UNHURRIED, 1, |_| (Gfn::new(0), 1 << 9));
    world.platform.arena.refuse_none();
    assert_eq!(writable(&world), BTreeSet::new());
    drop(vcpu);
    world.destroy();
}

fn without_write_is_what_decoding_and_encoding_come_to<F: Format>() {
    for level in [Level::PAGE, Level::MIB2] {
        for (rights, flags) in (0..8).flat_map(|rights| (0..8).map(move |flags| (rights, flags))) {
            let permissions = Permissions::from_bits_truncate(rights) | Permissions::READ;
            for memory in [MemoryType::WriteBack, MemoryType::Uncached, MemoryType::Device] {
                let of = |permissions| {
                    let what = Leaf {
                        memory,
                        accessed: flags & 1 != 0,
                        dirty: flags & 2 != 0,
                        written: flags & 4 != 0,
                        ..leaf(PAGES, permissions)
                    };
                    Entry::<F>::leaf(level, &what).bits()
                };
                let expected = permissions
                    .contains(Permissions::WRITE)
                    .then(|| of(permissions - Permissions::WRITE));
                assert_eq!(F::without_write(level, of(permissions)), expected, "{}", F::NAME);
            }
        }
    }
}

#[test]
fn a_right_that_is_taken_from_an_entry_is_one_bit_that_each_format_knows() {
    without_write_is_what_decoding_and_encoding_come_to::<Ept>();
    without_write_is_what_decoding_and_encoding_come_to::<Npt>();
    without_write_is_what_decoding_and_encoding_come_to::<Sv39x4>();
    without_write_is_what_decoding_and_encoding_come_to::<Arm<40>>();
    without_write_is_what_decoding_and_encoding_come_to::<Arm<40, true>>();
}
