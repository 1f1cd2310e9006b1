use std::collections::HashMap;

use mayfly_drivers::Rooms;
use proptest::prelude::*;

const COUNT: usize = 64;

proptest! {
    /// As a model that counts: a party gets one as long as it has fewer than are free.
    #[test]
    fn what_parties_have_and_what_is_free_is_all(steps in prop::collection::vec((0..5_u64, prop::bool::weighted(0.7)), 0..400)) {
        let mut rooms = Rooms::try_new(COUNT).unwrap();
        let mut held: HashMap<u64, usize> = HashMap::new();
        for (party, takes) in steps {
            let has = held.entry(party).or_default();
            let free = rooms.free();
            if takes {
                prop_assert_eq!(rooms.take(party), *has < free);
                *has += usize::from(*has < free);
            } else {
                // Nothing happens where it has none.
                rooms.give_back(party);
                *has = has.saturating_sub(1);
            }
            prop_assert_eq!(rooms.free() + held.values().sum::<usize>(), COUNT);
        }
    }

    /// So many that take all that they get leave some: half of what the others before them have left.
    #[test]
    fn floods_leave_room_for_one_more(floods in 0..6_u32) {
        let mut rooms = Rooms::try_new(COUNT).unwrap();
        for party in 0..u64::from(floods) {
            while rooms.take(party) {}
        }
        prop_assert_eq!(rooms.free(), COUNT >> floods);
        prop_assert!(rooms.take(100));
    }
}
