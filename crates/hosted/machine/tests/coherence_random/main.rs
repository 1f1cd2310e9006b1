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

use crate::steps::{nature, step};
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
