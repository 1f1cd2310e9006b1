//! Frames that no entry can name: they are refused, and nothing else is mapped in their place.

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::{Arm, Ept, Tables};
use mayfly_stage2::{Error, Format, Level, Mapped, Npt, Replacement, Sv39x4};
use proptest::prelude::*;

use crate::common::granted::{MapsAny, ReplacesAny};
use crate::common::{Vcpu, World, role};
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};

/// The first number that is too large.
fn limit<F: Format>() -> u64 {
    1 << F::PFN_BITS
}

fn refused<F: Format>(pfn: u64) -> Error {
    Error::PfnOutOfRange { pfn: Pfn::new(pfn), limit: Pfn::new(limit::<F>()) }
}

fn map<F: Format>(
    world: &World<F>,
    vcpu: &Vcpu<F>,
    gfn: u64,
    level: Level,
    pfn: u64,
) -> Result<Mapped, Error> {
    let section = world.srcu.read_lock();
    let seen = world.stage2.sample();
    vcpu.root.map(Gfn::new(gfn), level, &leaf(pfn, READ_WRITE), seen, &section)
}

fn translate<F: Format>(world: &World<F>, vcpu: &Vcpu<F>, gfn: u64) -> Option<u64> {
    let section = world.srcu.read_lock();
    vcpu.root.translate(Gfn::new(gfn), &section).map(|(_, leaf)| leaf.pfn.get())
}

fn a_page_or_block_past_the_last_frame_is_refused_and_changes_nothing<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    let frames = world.live();
    for level in [Level::PAGE, Level::MIB2, Level::GIB1] {
        for pfn in [limit::<F>(), limit::<F>() << 1, 1 << 63] {
            assert_eq!(map(&world, &vcpu, 0, level, pfn), Err(refused::<F>(pfn)));
        }
    }
    assert_eq!((translate(&world, &vcpu, 0), world.live()), (None, frames));
    // In the place of what is there, too.
    assert_eq!(map(&world, &vcpu, 0, Level::PAGE, 5), Ok(Mapped::Installed));
    let pfn = limit::<F>() + 5;
    assert_eq!(map(&world, &vcpu, 0, Level::PAGE, pfn), Err(refused::<F>(pfn)));
    assert_eq!(translate(&world, &vcpu, 0), Some(5));
    // The last one there is is none of those.
    let last = limit::<F>() - Level::GIB1.pages();
    assert_eq!(map(&world, &vcpu, 0, Level::GIB1, last), Ok(Mapped::Installed));
    assert_eq!(translate(&world, &vcpu, 0), Some(last));
    drop(vcpu);
    world.destroy();
}

fn a_run_that_goes_past_the_last_frame_is_refused_before_any_of_it_is_mapped<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    let frames = world.live();
    let run = |count: u64, pfn: u64, level| {
        let section = world.srcu.read_lock();
        let seen = world.stage2.sample();
        vcpu.root.map_any_run(gfns(0..count), level, &leaf(pfn, READ), seen, &section)
    };
    for (count, pfn) in [
        (1, limit::<F>()),
        (2, limit::<F>() - 1),
        (0x400, limit::<F>() - 0x200),
        (0x200, u64::MAX - 0x1ff),
        (0x200, u64::MAX),
    ] {
        assert_eq!(run(count, pfn, Level::PAGE), Err(refused::<F>(pfn)), "{count:#x}, {pfn:#x}");
    }
    assert_eq!((translate(&world, &vcpu, 0), world.live()), (None, frames));
    assert_eq!(run(0x400, limit::<F>() - 0x400, Level::PAGE), Ok(Mapped::Installed));
    assert_eq!(translate(&world, &vcpu, 0x3ff), Some(limit::<F>() - 1));
    drop(vcpu);
    world.destroy();
}

fn a_page_that_comes_to_be_in_such_a_frame_is_zapped<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    for gfn in [0, 1] {
        let section = world.srcu.read_lock();
        let seen = world.stage2.sample();
        let mapped =
            vcpu.root.map(Gfn::new(gfn), Level::PAGE, &leaf(5 + gfn, READ), seen, &section);
        assert_eq!(mapped, Ok(Mapped::Installed));
    }
    let range = gfns(0..2);
    let invalidation = world.stage2.begin_invalidation(&range);
    let with = |gfn: Gfn| {
        let new = if gfn.get() == 0 { limit::<F>() + 7 } else { 7 };
        let old = Pfn::new(5 + gfn.get());
        Some(Replacement { old, new: Pfn::new(new), same_contents: true })
    };
    let mut prepared = Vec::new();
    world.stage2.replace_any(&invalidation, range.clone(), UNHURRIED, with, |leaf| {
        prepared.push(leaf.pfn.get());
    });
    drop(invalidation);
    // Nobody touches what is not there.
    assert_eq!(prepared, [7]);
    assert_eq!([translate(&world, &vcpu, 0), translate(&world, &vcpu, 1)], [None, Some(7)]);
    drop(vcpu);
    world.destroy();
}

fn a_table_in_such_a_frame_is_refused_and_the_frame_given_back<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    assert_eq!(map(&world, &vcpu, 0, Level::MIB2, 0x200), Ok(Mapped::Installed));
    let frames = world.live();
    world.platform.lift(limit::<F>());
    let is_refused = |result: Result<Mapped, Error>| {
        let Err(Error::PfnOutOfRange { pfn, limit: end }) = result else {
            panic!("{result:?}");
        };
        assert!(pfn >= end && end.get() == limit::<F>());
    };
    is_refused(map(&world, &vcpu, Level::GIB1.pages(), Level::PAGE, 5));
    // A block that would have to be split for it.
    is_refused(map(&world, &vcpu, 1, Level::PAGE, 5));
    let section = world.srcu.read_lock();
    let seen = world.stage2.sample();
    let run = Level::GIB1.pages()..Level::GIB1.pages() + 0x200;
    is_refused(vcpu.root.map_any_run(gfns(run), Level::PAGE, &leaf(0, READ), seen, &section));
    assert!(matches!(
        world.stage2.root(role(1), &section).map(|_| ()),
        Err(Error::PfnOutOfRange { .. })
    ));
    drop(section);
    assert_eq!((translate(&world, &vcpu, 0), world.live()), (Some(0x200), frames));
    assert_eq!(world.stage2.frames(), frames);
    // Without a table a part of a block cannot be protected by itself, and is protected with all of it.
    world.stage2.write_protect(gfns(0..1), UNHURRIED, |_, _| ());
    assert_eq!(world.live(), frames);
    world.zap(gfns(0..0x200), Tables::Free, UNHURRIED);
    world.platform.lift(0);
    assert_eq!(map(&world, &vcpu, 1, Level::PAGE, 5), Ok(Mapped::Installed));
    drop(vcpu);
    world.destroy();
}

in_formats! {
    a_page_or_block_past_the_last_frame_is_refused_and_changes_nothing
    a_run_that_goes_past_the_last_frame_is_refused_before_any_of_it_is_mapped
    a_page_that_comes_to_be_in_such_a_frame_is_zapped
    a_table_in_such_a_frame_is_refused_and_the_frame_given_back
}

/// A frame's number, near a power of two.
fn pfn() -> impl Strategy<Value = u64> {
    (0..64_u32, -0x8_0000..0x8_0000_i64)
        .prop_map(|(bits, offset)| (1_u64 << bits).wrapping_add_signed(offset))
}

/// What a number may be, on numbers that do not overflow.
fn agrees<F: Format>(level: Level, pfn: u64) -> Result<(), TestCaseError> {
    let world = World::<F>::new(16);
    let vcpu = world.vcpu(0);
    let (first, pages) = (u128::from(pfn), u128::from(level.pages()));
    let expected = if first % pages != 0 {
        Err(Error::Misaligned { pfn: Pfn::new(pfn) })
    } else if first + pages > u128::from(limit::<F>()) {
        Err(refused::<F>(pfn))
    } else {
        Ok(Mapped::Installed)
    };
    let translated = expected.is_ok().then_some(pfn);
    prop_assert_eq!(map(&world, &vcpu, 0, level, pfn), expected);
    prop_assert_eq!(translate(&world, &vcpu, 0), translated);
    drop(vcpu);
    world.destroy();
    Ok(())
}

proptest! {
    #[test]
    fn a_frame_is_mapped_as_itself_or_refused(
        level in prop::sample::select(vec![Level::PAGE, Level::MIB2, Level::GIB1]),
        pfn in pfn(),
        aligned in any::<bool>(),
    ) {
        let pfn = if aligned { pfn & !(level.pages() - 1) } else { pfn };
        agrees::<Arm<32>>(level, pfn)?;
        agrees::<Arm<48>>(level, pfn)?;
        agrees::<Ept>(level, pfn)?;
        agrees::<Npt>(level, pfn)?;
        agrees::<Sv39x4>(level, pfn)?;
    }
}
