//! Replacements of roots that do not end, and what a thread is told that would wait for one of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mayfly_platform::testing::threads::ends;
use mayfly_stage2::{Arm, Ept, Format, Level, Reclaimed};

use crate::common::World;
use crate::common::granted::MapsAny;
use crate::{READ_WRITE, UNHURRIED, gfns, leaf};

/// A VM with tables in two roots, one of which was replaced, and whose replacement was forgotten.
fn forgetful<F: Format>() -> World<F> {
    let world = World::<F>::new(64);
    for pfn in [5, 6] {
        let root = world.root(0);
        let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
        let what = leaf(pfn, READ_WRITE);
        root.map(gfns(7..8).start, Level::PAGE, &what, seen, &section).unwrap();
        if pfn == 5 {
            std::mem::forget(world.stage2.replace_roots().unwrap());
        }
    }
    world
}

fn a_vm_whose_replacement_of_roots_was_forgotten_can_be_dropped_and_its_tables_are_freed<
    F: Format,
>() {
    ends(|| {
        let World { platform, stage2, reclaimer, .. } = forgetful::<F>();
        drop(stage2);
        while reclaimer.run_slice(UNHURRIED) != Reclaimed::All {}
        assert_eq!(platform.arena.live(), 0, "frames are left");
    });
}

in_formats! {
    a_vm_whose_replacement_of_roots_was_forgotten_can_be_dropped_and_its_tables_are_freed
}

/// What `act` is told, which would wait for its own caller.
#[cfg(debug_assertions)]
fn told(act: impl FnOnce()) -> String {
    let told = catch_unwind(AssertUnwindSafe(act)).unwrap_err();
    told.downcast::<&str>().map_or_else(|told| *told.downcast().unwrap(), |told| told.to_string())
}

#[test]
#[cfg(debug_assertions)]
fn a_thread_that_would_wait_for_its_own_replacement_of_roots_is_told() {
    ends(|| {
        let world = World::<Ept>::new(64);
        drop(world.root(0));
        let retiring = world.stage2.replace_roots().unwrap();
        let says = "the caller's own `Retiring`";
        assert!(told(|| drop(world.stage2.replace_roots())).contains(says));
        assert!(told(|| world.stage2.retire()).contains(says));
        // Nothing has changed, and afterwards it can be.
        retiring.finish();
        world.stage2.replace_roots().unwrap().finish();
        world.destroy();
    });
}

#[test]
#[cfg(debug_assertions)]
fn a_thread_that_has_forgotten_a_replacement_of_roots_is_told() {
    ends(|| {
        let world = forgetful::<Arm<40>>();
        let says = "the caller's own `Retiring`";
        assert!(told(|| drop(world.stage2.replace_roots())).contains(says));
        assert!(told(|| world.stage2.retire()).contains(says));
    });
}
