//! DDI 0487, "Using break-before-make when updating translation table entries".

use mayfly_platform::address::Pfn;
use mayfly_stage2::{
    Arm, ArmFwb, Entry, Ept, Format, Leaf, Level, MemoryType, Npt, Permissions, Sv39x4, Sv48x4,
};

use crate::{ALL, READ, READ_EXECUTE, READ_WRITE};

const LEVELS: [Level; 3] = [Level::PAGE, Level::MIB2, Level::GIB1];
const MEMORY: [MemoryType; 3] = [MemoryType::WriteBack, MemoryType::Uncached, MemoryType::Device];

/// Two frames that blocks of any size can begin with.
const ONE: Pfn = Pfn::new(0x4_0000);
const OTHER: Pfn = Pfn::new(0x8_0000);

/// Every leaf of the two frames.
fn leaves() -> Vec<Leaf> {
    let mut leaves = Vec::new();
    for pfn in [ONE, OTHER] {
        for permissions in [READ, READ_WRITE, READ_EXECUTE, ALL] {
            for memory in MEMORY {
                for accessed in [false, true] {
                    let leaf = Leaf::new(pfn, permissions);
                    leaves.push(Leaf { memory, accessed, ..leaf });
                }
            }
        }
    }
    leaves
}

fn required<F: Format>(level: Level, old: &Leaf, new: &Leaf, same_contents: bool) -> bool {
    let [old, new] = [old, new].map(|leaf| Entry::<F>::leaf(level, leaf));
    old.requires_break_before_make(level, new, same_contents)
}

/// Whether Arm requires it of two leaves of one memory type: by whether the address changes, the old is writable, the
/// new is writable, and the contents are the same.
const ADDRESS: [((bool, bool, bool, bool), bool); 16] = [
    ((false, false, false, false), false),
    ((false, false, false, true), false),
    ((false, false, true, false), false),
    ((false, false, true, true), false),
    ((false, true, false, false), false),
    ((false, true, false, true), false),
    ((false, true, true, false), false),
    ((false, true, true, true), false),
    ((true, false, false, false), true),
    // Two pages are merged.
    ((true, false, false, true), false),
    ((true, false, true, false), true),
    // A merged page is copied, to be written.
    ((true, false, true, true), true),
    ((true, true, false, false), true),
    ((true, true, false, true), true),
    ((true, true, true, false), true),
    ((true, true, true, true), true),
];

#[test]
fn arm_requires_it_for_an_address_that_changes_under_a_writer_or_with_its_contents() {
    fn check<F: Format>() {
        for (level, old, new, same_contents) in pairs() {
            if old.memory != new.memory {
                continue;
            }
            let case = (
                old.pfn != new.pfn,
                old.permissions.contains(Permissions::WRITE),
                new.permissions.contains(Permissions::WRITE),
                same_contents,
            );
            let (_, expected) = *ADDRESS.iter().find(|(row, _)| *row == case).unwrap();
            let required = required::<F>(level, &old, &new, same_contents);
            assert_eq!(required, expected, "{old:?} to {new:?} at {level:?}, {same_contents}");
        }
    }
    check::<Arm<40>>();
    check::<Arm<48>>();
    check::<ArmFwb<48>>();
}

#[test]
fn arm_requires_it_for_another_memory_type() {
    fn check<F: Format>() {
        for (level, old, new, same_contents) in pairs() {
            if old.memory != new.memory {
                assert!(required::<F>(level, &old, &new, same_contents), "{old:?} to {new:?}");
            }
        }
    }
    check::<Arm<40>>();
    check::<Arm<48>>();
    check::<ArmFwb<48>>();
}

#[test]
fn arm_requires_it_for_another_shareability() {
    const SHAREABILITY: u64 = 3 << 8;
    let inner = Entry::<Arm<48>>::leaf(Level::PAGE, &Leaf::new(ONE, READ));
    let none = Entry::<Arm<48>>::from_bits(inner.bits() & !SHAREABILITY);
    assert!(inner.requires_break_before_make(Level::PAGE, none, true));
    assert!(none.requires_break_before_make(Level::PAGE, inner, true));
}

#[test]
fn arm_requires_it_between_tables_and_blocks_and_between_tables() {
    fn check<F: Format>() {
        let (one, other) = (Entry::<F>::table(ONE), Entry::<F>::table(OTHER));
        for level in [Level::MIB2, Level::GIB1] {
            for same_contents in [false, true] {
                for leaf in leaves() {
                    let block = Entry::<F>::leaf(level, &leaf);
                    assert!(one.requires_break_before_make(level, block, same_contents));
                    assert!(block.requires_break_before_make(level, one, same_contents));
                }
                assert!(one.requires_break_before_make(level, other, same_contents));
                assert!(!one.requires_break_before_make(level, one, same_contents));
            }
        }
    }
    check::<Arm<40>>();
    check::<Arm<48>>();
    check::<ArmFwb<48>>();
}

#[test]
fn the_other_architectures_never_require_it() {
    fn check<F: Format>() {
        for (level, old, new, same_contents) in pairs() {
            assert!(!required::<F>(level, &old, &new, same_contents));
        }
        let table = Entry::<F>::table(ONE);
        let block = Entry::<F>::leaf(Level::MIB2, &Leaf::new(OTHER, ALL));
        assert!(!table.requires_break_before_make(Level::MIB2, block, false));
        assert!(!block.requires_break_before_make(Level::MIB2, table, false));
    }
    check::<Ept>();
    check::<Npt>();
    check::<Sv39x4>();
    check::<Sv48x4>();
}

/// Every two leaves, at every level, with and without the same contents.
fn pairs() -> impl Iterator<Item = (Level, Leaf, Leaf, bool)> {
    let leaves = leaves();
    LEVELS.into_iter().flat_map(move |level| {
        let new = leaves.clone();
        leaves.clone().into_iter().flat_map(move |old| {
            new.clone().into_iter().flat_map(move |new| {
                [false, true].map(|same_contents| (level, old, new, same_contents))
            })
        })
    })
}
