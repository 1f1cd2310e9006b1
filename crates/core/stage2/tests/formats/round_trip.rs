use mayfly_platform::address::Pfn;
use mayfly_stage2::{
    Arm, ArmFwb, Entry, Ept, Format, Leaf, Level, MemoryType, Npt, Permissions, State, Sv39x4,
    Sv48x4,
};
use proptest::prelude::*;

/// A page or block size.
fn level() -> impl Strategy<Value = Level> {
    prop::sample::select(vec![Level::PAGE, Level::MIB2, Level::GIB1])
}

/// A leaf of any frame; with READ, which every leaf has, or without.
fn leaf() -> impl Strategy<Value = Leaf> {
    let memory = vec![MemoryType::WriteBack, MemoryType::Uncached, MemoryType::Device];
    (any::<u64>(), 1_u8..8, prop::sample::select(memory), any::<[bool; 3]>()).prop_map(
        |(pfn, permissions, memory, [accessed, dirty, written])| Leaf {
            pfn: Pfn::new(pfn),
            permissions: Permissions::from_bits_truncate(permissions),
            memory,
            accessed,
            dirty,
            written,
        },
    )
}

/// The frame, of those that `F` can name, and that a block of `level` can begin with.
fn nameable<F: Format>(level: Level, pfn: Pfn) -> Pfn {
    Pfn::new(pfn.get() & ((1 << F::PFN_BITS) - 1) & !(level.pages() - 1))
}

fn a_leaf_survives<F: Format>(level: Level, leaf: Leaf) -> Result<(), TestCaseError> {
    let leaf = Leaf { pfn: nameable::<F>(level, leaf.pfn), ..leaf };
    let entry = Entry::<F>::leaf(level, &leaf);
    prop_assert_eq!(entry.state(level), State::Leaf);
    let kept = Leaf {
        permissions: leaf.permissions | Permissions::READ,
        dirty: leaf.dirty && F::SETS_DIRTY,
        ..leaf
    };
    prop_assert_eq!(entry.to_leaf(level), kept);
    prop_assert_eq!(Entry::<F>::leaf(level, &kept), entry);
    Ok(())
}

fn a_table_survives<F: Format>(level: Level, pfn: Pfn) -> Result<(), TestCaseError> {
    let pfn = nameable::<F>(Level::PAGE, pfn);
    prop_assert_eq!(Entry::<F>::table(pfn).state(level), State::Table(pfn));
    Ok(())
}

proptest! {
    #[test]
    fn a_leaf_is_decoded_as_it_was_encoded(level in level(), leaf in leaf()) {
        a_leaf_survives::<Arm<40>>(level, leaf)?;
        a_leaf_survives::<Arm<48>>(level, leaf)?;
        a_leaf_survives::<ArmFwb<32>>(level, leaf)?;
        a_leaf_survives::<ArmFwb<48>>(level, leaf)?;
        a_leaf_survives::<Ept>(level, leaf)?;
        a_leaf_survives::<Npt>(level, leaf)?;
        a_leaf_survives::<Sv39x4>(level, leaf)?;
        a_leaf_survives::<Sv48x4>(level, leaf)?;
    }

    #[test]
    fn a_table_is_told_from_a_block(
        level in prop::sample::select(vec![Level::MIB2, Level::GIB1, Level::GIB512]),
        pfn in any::<u64>().prop_map(Pfn::new),
    ) {
        a_table_survives::<Arm<40>>(level, pfn)?;
        a_table_survives::<Arm<48>>(level, pfn)?;
        a_table_survives::<ArmFwb<48>>(level, pfn)?;
        a_table_survives::<Ept>(level, pfn)?;
        a_table_survives::<Npt>(level, pfn)?;
        a_table_survives::<Sv39x4>(level, pfn)?;
        a_table_survives::<Sv48x4>(level, pfn)?;
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "no entry can name")]
fn a_frame_that_no_entry_can_name_is_a_mistake() {
    let _ = Entry::<Arm<40>>::table(Pfn::new(1 << 36));
}
