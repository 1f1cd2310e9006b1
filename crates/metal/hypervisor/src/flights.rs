//! Requests of a guest's disk that are under way, some at a time (*flights*). Each is carried out in pieces, several of
//! which are under way at a time, and end in any order.
//!
//! If the driver of the disk begins anew, its requests from then on have another *epoch*. No piece of them begins as long
//! as a piece of an earlier epoch is under way. What is left of earlier requests does not begin at all: nobody waits for
//! it.

/// The most requests that are under way.
pub const FLIGHTS: usize = 8;

/// A request.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    is_taken: bool,
    /// The place of the request in the order in which they began.
    number: u64,
    epoch: u32,
    len: u64,
    /// How many bytes of it were begun, and how many pieces of these have not ended.
    begun: u64,
    pieces: u32,
    has_failed: bool,
}

impl Flight {
    const fn is_over(&self) -> bool {
        self.is_taken && self.pieces == 0 && (self.has_failed || self.begun == self.len)
    }

    const fn is_to_go_on(&self) -> bool {
        self.is_taken && !self.has_failed && self.begun < self.len
    }
}

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The request.
    pub flight: usize,
    /// The piece's place in it.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
}

/// Requests that are under way.
#[derive(Debug, Default)]
pub struct Flights([Flight; FLIGHTS]);

impl Flights {
    /// Where there is room for one more.
    pub fn vacancy(&self) -> Option<usize> {
        self.0.iter().position(|flight| !flight.is_taken)
    }

    /// A request of `len` bytes begins, where there is room. Those of another epoch are given up.
    pub fn begin(&mut self, flight: usize, len: u64, epoch: u32) {
        for other in self.0.iter_mut().filter(|other| other.is_taken && other.epoch != epoch) {
            other.has_failed = true;
        }
        let number = self.0.iter().map(|other| other.number).max().unwrap_or(0) + 1;
        self.0[flight] = Flight { is_taken: true, number, epoch, len, ..Flight::default() };
    }

    /// The next piece that may begin, of at most `most` bytes: of the request that began first, so that none waits for those
    /// that come after it.
    pub fn next_piece(&self, most: u64) -> Option<Piece> {
        let waits = |flight: &Flight| {
            self.0.iter().any(|other| other.is_taken && other.epoch != flight.epoch)
        };
        let may_go_on = |(_, flight): &(usize, &Flight)| flight.is_to_go_on() && !waits(flight);
        let all = self.0.iter().enumerate().filter(may_go_on);
        let (flight, Flight { begun, len, .. }) = all.min_by_key(|(_, flight)| flight.number)?;
        Some(Piece { flight, offset: *begun, len: (len - begun).min(most) })
    }

    /// A piece, which was the next, has begun.
    pub fn has_begun(&mut self, piece: Piece) {
        let flight = &mut self.0[piece.flight];
        flight.begun += piece.len;
        flight.pieces += 1;
    }

    /// A piece that has begun has ended, well or not.
    pub fn has_ended(&mut self, flight: usize, is_well: bool) {
        if let Some(flight) = self.0.get_mut(flight).filter(|flight| flight.pieces > 0) {
            flight.pieces -= 1;
            flight.has_failed |= !is_well;
        }
    }

    /// A request has failed: no more of it begins.
    pub fn fail(&mut self, flight: usize) {
        self.0[flight].has_failed = true;
    }

    /// A request that is over, and whether it has gone well. There is room in its place from now on.
    pub fn next_over(&mut self) -> Option<(usize, bool)> {
        let flight = self.0.iter().position(Flight::is_over)?;
        self.0[flight].is_taken = false;
        Some((flight, !self.0[flight].has_failed))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_request_waits_for_those_that_began_after_it() {
        // Requests of eight pieces, eight pieces under way at a time, which end in their order; always more to do.
        let mut flights = Flights::default();
        let mut under_way = std::collections::VecDeque::new();
        let (mut began, mut order) = (0, [0_usize; FLIGHTS]);
        for _ in 0..10_000 {
            while let Some(place) = flights.vacancy() {
                flights.begin(place, 8, 0);
                began += 1;
                order[place] = began;
            }
            while under_way.len() < 8
                && let Some(piece) = flights.next_piece(1)
            {
                flights.has_begun(piece);
                under_way.push_back(piece.flight);
            }
            flights.has_ended(under_way.pop_front().unwrap(), true);
            if let Some((place, _)) = flights.next_over() {
                let oldest = (0..FLIGHTS).filter(|&other| other != place).map(|other| order[other]);
                assert!(oldest.min().unwrap() + FLIGHTS > order[place], "one waits for ever");
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Begin(u64),
        Anew,
        Piece(u64),
        End(prop::sample::Index, bool),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..100_u64).prop_map(Step::Begin),
            1 => Just(Step::Anew),
            6 => (1..40_u64).prop_map(Step::Piece),
            6 => (any::<prop::sample::Index>(), prop::bool::weighted(0.9)).prop_map(|(which, is_well)| Step::End(which, is_well)),
        ]
    }

    /// What the model knows of a request.
    #[derive(Debug)]
    struct Known {
        epoch: u32,
        len: u64,
        begun: u64,
        has_failed: bool,
        is_given_up: bool,
    }

    proptest! {
        /// Beside a model that knows all: each byte begins once, in order; nothing begins beside an earlier epoch; each
        /// request is over once, when its last piece has ended.
        #[test]
        fn each_request_is_carried_out_once(steps in prop::collection::vec(any_step(), 0..300)) {
            let mut flights = Flights::default();
            let (mut known, mut under_way) = (HashMap::<usize, Known>::new(), Vec::<Piece>::new());
            let mut epoch = 0;
            for step in steps {
                match step {
                    Step::Begin(len) => {
                        prop_assert_eq!(flights.vacancy().is_none(), known.len() == FLIGHTS);
                        if let Some(flight) = flights.vacancy() {
                            flights.begin(flight, len, epoch);
                            known.values_mut().filter(|known| known.epoch != epoch).for_each(|known| known.is_given_up = true);
                            let new = Known { epoch, len, begun: 0, has_failed: false, is_given_up: false };
                            prop_assert!(known.insert(flight, new).is_none());
                        }
                    }
                    Step::Anew => epoch += 1,
                    Step::Piece(most) => {
                        let open = |known: &Known| known.begun < known.len && !known.has_failed && !known.is_given_up;
                        let alone = known.values().all(|other| known.values().all(|one| one.epoch == other.epoch));
                        match flights.next_piece(most) {
                            None => prop_assert!(!known.values().any(open) || !alone),
                            Some(piece) => {
                                prop_assert!(alone);
                                let known = known.get_mut(&piece.flight).unwrap();
                                prop_assert!(open(known));
                                prop_assert_eq!(piece.offset, known.begun);
                                prop_assert_eq!(piece.len, most.min(known.len - known.begun));
                                known.begun += piece.len;
                                flights.has_begun(piece);
                                under_way.push(piece);
                            }
                        }
                    }
                    Step::End(which, is_well) if !under_way.is_empty() => {
                        let piece = under_way.swap_remove(which.index(under_way.len()));
                        flights.has_ended(piece.flight, is_well);
                        known.get_mut(&piece.flight).unwrap().has_failed |= !is_well;
                    }
                    Step::End(..) => {}
                }
                while let Some((flight, is_well)) = flights.next_over() {
                    let known = known.remove(&flight).unwrap();
                    prop_assert!(under_way.iter().all(|piece| piece.flight != flight));
                    prop_assert_eq!(is_well, !known.has_failed && !known.is_given_up);
                    prop_assert!(!is_well || known.begun == known.len);
                }
                // Nothing that is over stays.
                for (flight, known) in &known {
                    let is_busy = under_way.iter().any(|piece| piece.flight == *flight);
                    let is_to_go_on = known.begun < known.len && !known.has_failed && !known.is_given_up;
                    prop_assert!(is_busy || is_to_go_on);
                }
            }
        }
    }

    #[test]
    fn what_has_not_begun_does_not_end() {
        let mut flights = Flights::default();
        flights.begin(0, 10, 0);
        flights.has_ended(0, false);
        flights.has_ended(FLIGHTS, true);
        assert_eq!(flights.next_over(), None);
        assert_eq!(flights.next_piece(4), Some(Piece { flight: 0, offset: 0, len: 4 }));
        flights.fail(0);
        assert_eq!(flights.next_over(), Some((0, false)));
    }
}
