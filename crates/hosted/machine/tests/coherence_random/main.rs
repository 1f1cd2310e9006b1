//! vCPUs that turn their caches on and off at random, and write and read as far as somebody promises what they find,
//! while the host does to their memory what hosts do, and the VMM to their slots: one after the other, and some of it
//! with an access in the middle.
//!
//! Beside them goes a model that knows of each page only where its last value is: in both memory and caches, or in one
//! of them. It allows what has a promise, and no more: nobody reads, or writes to, the side that is behind.

mod beside;
mod changes;
mod guests;
mod steps;
mod world;

use proptest::prelude::*;

use crate::steps::{Access, Change, Middle, Nature, Step, Which, nature, step};
use crate::world::World;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(72))]

    #[test]
    fn a_vcpu_finds_what_was_written_last_wherever_that_is_promised(
        nature in nature(),
        steps in prop::collection::vec(step(), 1..160),
    ) {
        let mut world = World::new(nature);
        for step in steps {
            world.does(step);
        }
        world.ends();
        let flushed = world.machine.cache().lines().flushed;
        prop_assert!(flushed <= 64 * world.past, "no more is flushed than was written");
    }
}

/// While the slot moves, page 2 is still mapped where page 3 comes to be. The guest's write copies page 3, which empties
/// the entry there.
#[test]
fn a_page_is_flushed_before_the_copy_of_another_takes_its_place_while_their_slot_moves_onto_itself()
{
    let which = |page| Which { vm: 1, slot: 0, page };
    let beside = |change, page| {
        let access = Access { vcpu: 0, which: which(page), write: true };
        Step::Beside(change, Middle { before: false, access, switches: false })
    };
    for all_roots in [false, true] {
        // The write comes before the slot is zapped in most of them.
        for _ in 0..10 {
            let (huge, fgt, coherent_swap, slice) = (false, false, false, 1);
            let mut world = World::new(Nature { huge, all_roots, fgt, coherent_swap, slice });
            // It is there to be copied.
            world.does(Step::Access(Access { vcpu: 0, which: which(3), write: false }));
            world.does(beside(Change::Place(which(0), 1), 0));
            world.does(Step::Changes(Change::Fork(which(3))));
            world.does(beside(Change::Place(which(2), 0), 3));
            world.ends();
        }
    }
}
