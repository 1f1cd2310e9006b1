//! Those that wait for room which others have, in the order in which they came. Whoever gives room back tells all that wait
//! at that moment. A lock around it is the one under which room is found missing and given back, so that none comes in
//! between.
//!
//! Those that wait are told one after the other, and the lock is free in between. Meanwhile some may leave, and others come.
//! So each has a number, and neither makes another be passed over or told twice.

use alloc::collections::{TryReserveError, VecDeque};
use core::mem::replace;

/// Those that wait, each with what tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiting<T> {
    all: VecDeque<Place<T>>,
    next: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place<T> {
    party: u64,
    number: u64,
    bell: T,
}

/// The moment at which room was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(u64);

impl<T> Waiting<T> {
    /// Nobody waits. `most` may, without an allocation.
    ///
    /// # Errors
    ///
    /// When there is no memory for them.
    pub fn try_new(most: usize) -> Result<Self, TryReserveError> {
        let mut all = VecDeque::new();
        all.try_reserve_exact(most)?;
        Ok(Self { all, next: 0 })
    }

    /// A party waits, and is told by `bell`. If it waits already, it keeps its place; returns what it was to be told by.
    pub fn join(&mut self, party: u64, bell: T) -> Option<T> {
        if let Some(place) = self.all.iter_mut().find(|place| place.party == party) {
            return Some(replace(&mut place.bell, bell));
        }
        self.all.push_back(Place { party, number: self.next, bell });
        self.next += 1;
        None
    }

    /// Room was given back: those that wait now are to be told ([`Waiting::take`]).
    pub fn mark(&self) -> Mark {
        Mark(self.next)
    }

    /// The next of those that have waited at that moment. It waits no more.
    pub fn take(&mut self, mark: Mark) -> Option<T> {
        let is_before = self.all.front().is_some_and(|place| place.number < mark.0);
        if is_before { self.all.pop_front().map(|place| place.bell) } else { None }
    }

    /// A party waits no more.
    pub fn leave(&mut self, party: u64) -> Option<T> {
        let place = self.all.iter().position(|place| place.party == party)?;
        self.all.remove(place).map(|place| place.bell)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::vec::Vec;

    use super::*;

    const PARTIES: usize = 4;
    const ROOM: usize = 3;

    /// What a party does next.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Party {
        /// It asks for room, when it runs.
        Runs,
        Sleeps,
        Gone,
    }

    /// Parties that ask for room and give it back, in any order, and of which some leave. A party gets room as long as it has
    /// less than is free.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        waiting: Waiting<usize>,
        parties: [Party; PARTIES],
        held: [usize; PARTIES],
        /// Those that have given room back, and are telling others.
        telling: Vec<Mark>,
    }

    impl World {
        fn free(&self) -> usize {
            ROOM - self.held.iter().sum::<usize>()
        }

        /// All that may happen next. Each is one step, under the lock.
        fn next(&self) -> Vec<Self> {
            let mut all = Vec::new();
            for party in 0..PARTIES {
                let mut add = |step: &dyn Fn(&mut Self)| {
                    let mut next = self.clone();
                    step(&mut next);
                    all.push(next);
                };
                match self.parties[party] {
                    Party::Runs if self.held[party] < self.free() => {
                        add(&|next| next.held[party] += 1);
                    }
                    Party::Runs => add(&|next| {
                        assert_eq!(next.waiting.join(party as u64, party), None);
                        next.parties[party] = Party::Sleeps;
                    }),
                    Party::Sleeps | Party::Gone => {}
                }
                // What it has ends, whether it sleeps or not.
                if self.held[party] > 0 {
                    add(&|next| {
                        next.held[party] -= 1;
                        next.telling.push(next.waiting.mark());
                    });
                } else if self.parties[party] != Party::Gone {
                    add(&|next| {
                        next.waiting.leave(party as u64);
                        next.parties[party] = Party::Gone;
                    });
                }
            }
            for place in 0..self.telling.len() {
                let mut next = self.clone();
                match next.waiting.take(next.telling[place]) {
                    Some(party) => next.parties[party] = Party::Runs,
                    None => {
                        next.telling.remove(place);
                    }
                }
                all.push(next);
            }
            all
        }
    }

    #[test]
    fn nobody_sleeps_beside_room_that_it_would_get_unless_it_is_about_to_be_told() {
        let waiting = Waiting::try_new(PARTIES).unwrap();
        let (parties, held) = ([Party::Runs; PARTIES], [0; PARTIES]);
        let mut known = HashSet::from([World { waiting, parties, held, telling: Vec::new() }]);
        let mut last = known.clone();
        for _ in 0..11 {
            let next: HashSet<_> = last.iter().flat_map(World::next).collect();
            last = next.into_iter().filter(|world| known.insert(world.clone())).collect();
        }
        for world in &known {
            for party in 0..PARTIES {
                let would_get = world.held[party] < world.free();
                if world.parties[party] == Party::Sleeps && would_get {
                    let mut places = world.waiting.all.iter();
                    let place = places.find(|place| place.bell == party).unwrap();
                    let is_told = world.telling.iter().any(|mark| place.number < mark.0);
                    assert!(is_told, "{party} sleeps for good: {world:?}");
                }
            }
        }
        assert!(known.len() > 1000);
    }

    #[test]
    fn a_party_waits_once_and_those_that_come_later_are_told_later() {
        let mut waiting = Waiting::try_new(4).unwrap();
        assert_eq!(waiting.join(1, 'a'), None);
        assert_eq!(waiting.join(2, 'b'), None);
        assert_eq!(waiting.join(1, 'c'), Some('a'), "it has another bell by now");
        let mark = waiting.mark();
        assert_eq!(waiting.take(mark), Some('c'));
        assert_eq!(waiting.join(1, 'd'), None);
        assert_eq!(waiting.leave(3), None);
        assert_eq!(waiting.take(mark), Some('b'));
        assert_eq!(waiting.take(mark), None);
        assert_eq!(waiting.leave(1), Some('d'));
        assert_eq!(waiting.take(waiting.mark()), None);
    }
}
