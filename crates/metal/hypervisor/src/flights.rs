//! Requests of a guest's disk that are under way, some at a time (*flights*). Each is carried out in pieces, several of
//! which are under way at a time, and end in any order.
//!
//! What a request has written may be to be *kept* when it is over. Then its last piece is a flush, which begins when all
//! others have ended well.
//!
//! If the driver of the disk begins anew, its requests from then on have another *epoch*. No piece of them begins as long
//! as a piece of an earlier epoch is under way. What is left of earlier requests does not begin at all: nobody waits for
//! it. Nor does it if the driver has begun anew and has asked for nothing since: whether a request is still wanted is asked
//! before each of its pieces.
//!
//! A request that *clears* has no data, so one piece of it may be as large as the machine's disk takes, and keep that busy for
//! long. Others have their requests served in between: such a piece has [`MOST_CLEARED`] bytes at most, and one of all
//! that clear is under way at a time.

/// The most requests that are under way.
pub const FLIGHTS: usize = 8;

/// The most bytes of a piece that clears.
pub const MOST_CLEARED: u64 = 8 << 20;

/// What a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// How many bytes it has.
    pub len: u64,
    /// What it has written is to be kept when it is over.
    pub keeps: bool,
    /// It clears.
    pub clears: bool,
}

/// A request.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    /// The place of the request in the order in which they began.
    number: u64,
    epoch: u32,
    len: u64,
    clears: bool,
    /// How many bytes of it were begun, and how many pieces of these have not ended.
    begun: u64,
    pieces: u32,
    /// Its flush is still to begin.
    is_to_flush: bool,
    has_failed: bool,
}

impl Flight {
    const fn is_over(&self) -> bool {
        let has_begun = self.begun == self.len && !self.is_to_flush;
        self.pieces == 0 && (self.has_failed || has_begun)
    }

    /// What of it is to begin next, of at most `most` bytes, if something may.
    fn next(&self, most: u64) -> Option<Part> {
        let rest = self.len - self.begun;
        let most = if self.clears { most.min(MOST_CLEARED) } else { most };
        match self.has_failed {
            true => None,
            false if rest > 0 => Some(Part::Data { offset: self.begun, len: rest.min(most) }),
            false => (self.is_to_flush && self.pieces == 0).then_some(Part::Flush),
        }
    }
}

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The request.
    pub flight: usize,
    /// What of it.
    pub part: Part,
}

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Some of its bytes.
    Data {
        /// The piece's place in the request.
        offset: u64,
        /// How many bytes it has.
        len: u64,
    },
    /// The flush, after all of them.
    Flush,
}

impl Part {
    /// Its place in the request.
    pub const fn offset(self) -> u64 {
        match self {
            Self::Data { offset, .. } => offset,
            Self::Flush => 0,
        }
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This piece may begin.
    Begins(Piece),
    /// A request was given up, which nobody wants any more. There may be more to do.
    GivenUp,
}

/// Requests that are under way.
#[derive(Debug, Default)]
pub struct Flights([Option<Flight>; FLIGHTS]);

impl Flights {
    /// Where there is room for one more.
    pub fn vacancy(&self) -> Option<usize> {
        self.0.iter().position(Option::is_none)
    }

    /// A request begins, where there is room. Those of another epoch are given up.
    pub fn begin(&mut self, flight: usize, Extent { len, keeps, clears }: Extent, epoch: u32) {
        for other in self.0.iter_mut().flatten().filter(|other| other.epoch != epoch) {
            other.has_failed = true;
        }
        let number = self.0.iter().flatten().map(|other| other.number).max().unwrap_or(0) + 1;
        self.0[flight] =
            Some(Flight { number, epoch, len, clears, is_to_flush: keeps, ..Flight::default() });
    }

    /// The next piece that may begin, of at most `most` bytes, which depend on the request: of the request that began first, so
    /// that none waits for those that come after it; if it `is_wanted` still.
    pub fn next(
        &mut self,
        is_wanted: impl FnOnce(usize) -> bool,
        most: impl Fn(usize) -> u64,
    ) -> Option<Next> {
        let is_clearing = self.0.iter().flatten().any(|other| other.clears && other.pieces > 0);
        let waits = |flight: &Flight| {
            let mut others = self.0.iter().flatten();
            flight.clears && is_clearing || others.any(|other| other.epoch != flight.epoch)
        };
        let next = |(place, flight): (usize, &Option<Flight>)| {
            let flight = flight.as_ref()?;
            let part = flight.next(most(place)).filter(|_| !waits(flight))?;
            Some((flight.number, Piece { flight: place, part }))
        };
        let all = self.0.iter().enumerate().filter_map(next);
        let (_, piece) = all.min_by_key(|(number, _)| *number)?;
        if is_wanted(piece.flight) {
            return Some(Next::Begins(piece));
        }
        self.fail(piece.flight);
        Some(Next::GivenUp)
    }

    /// A piece, which was the next, has begun.
    pub fn has_begun(&mut self, piece: Piece) {
        let Some(flight) = &mut self.0[piece.flight] else { return };
        match piece.part {
            Part::Data { len, .. } => flight.begun += len,
            Part::Flush => flight.is_to_flush = false,
        }
        flight.pieces += 1;
    }

    /// A piece that has begun has ended, well or not.
    pub fn has_ended(&mut self, flight: usize, is_well: bool) {
        let flight = self.0.get_mut(flight).and_then(Option::as_mut);
        if let Some(flight) = flight.filter(|flight| flight.pieces > 0) {
            flight.pieces -= 1;
            flight.has_failed |= !is_well;
        }
    }

    /// A request has failed: no more of it begins.
    pub fn fail(&mut self, flight: usize) {
        if let Some(flight) = &mut self.0[flight] {
            flight.has_failed = true;
        }
    }

    /// A request that is over, and whether it has gone well. There is room in its place from now on.
    pub fn next_over(&mut self) -> Option<(usize, bool)> {
        let place =
            self.0.iter().position(|flight| flight.as_ref().is_some_and(Flight::is_over))?;
        let flight = self.0[place].take()?;
        Some((place, !flight.has_failed))
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
                flights.begin(place, Extent { len: 8, ..Extent::default() }, 0);
                began += 1;
                order[place] = began;
            }
            while under_way.len() < 8
                && let Some(Next::Begins(piece)) = flights.next(|_| true, |_| 1)
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
        Begin(Extent),
        Anew,
        Piece(u64, bool),
        End(prop::sample::Index, bool),
    }

    /// The unit of lengths: a piece that clears has eight at most.
    const UNIT: u64 = 1 << 20;

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..100_u64, any::<bool>(), any::<bool>()).prop_map(|(len, keeps, clears)| Step::Begin(Extent { len: len * UNIT, keeps, clears })),
            1 => Just(Step::Anew),
            6 => (1..40_u64, prop::bool::weighted(0.95)).prop_map(|(most, is_wanted)| Step::Piece(most * UNIT, is_wanted)),
            6 => (any::<prop::sample::Index>(), prop::bool::weighted(0.9)).prop_map(|(which, is_well)| Step::End(which, is_well)),
        ]
    }

    /// What the model knows of a request.
    #[derive(Debug)]
    struct Known {
        epoch: u32,
        extent: Extent,
        begun: u64,
        has_flushed: bool,
        /// A piece of it has failed, or it was given up.
        is_in_vain: bool,
    }

    impl Known {
        /// What of it has not begun, and is not in vain: `false` for the flush alone.
        fn open(&self) -> Option<bool> {
            let has_more = self.begun < self.extent.len;
            (!self.is_in_vain && (has_more || self.extent.keeps && !self.has_flushed))
                .then_some(has_more)
        }
    }

    proptest! {
        /// Beside a model that knows all: each byte begins once, in order; a flush begins when all bytes have ended well, and
        /// nothing that is to be kept is over well before it; nothing begins beside an earlier epoch, or of what nobody wants;
        /// no piece that clears is too large, or begins beside another one; each request is over once, when its last piece has
        /// ended.
        #[test]
        fn each_request_is_carried_out_once(steps in prop::collection::vec(any_step(), 0..300)) {
            let mut flights = Flights::default();
            let (mut known, mut under_way) = (HashMap::<usize, Known>::new(), Vec::<Piece>::new());
            let mut epoch = 0;
            for step in steps {
                match step {
                    Step::Begin(extent) => {
                        prop_assert_eq!(flights.vacancy().is_none(), known.len() == FLIGHTS);
                        if let Some(flight) = flights.vacancy() {
                            flights.begin(flight, extent, epoch);
                            known.values_mut().filter(|known| known.epoch != epoch).for_each(|known| known.is_in_vain = true);
                            let new = Known { epoch, extent, begun: 0, has_flushed: false, is_in_vain: false };
                            prop_assert!(known.insert(flight, new).is_none());
                        }
                    }
                    Step::Anew => epoch += 1,
                    Step::Piece(most, is_wanted) => {
                        let is_busy = |flight: &usize| under_way.iter().any(|piece| piece.flight == *flight);
                        let is_clearing = known.iter().any(|(flight, known)| known.extent.clears && is_busy(flight));
                        let may = |(flight, known): (&usize, &Known)| {
                            let may = known.open().is_some_and(|has_more| has_more || !is_busy(flight));
                            may && !(known.extent.clears && is_clearing)
                        };
                        let alone = known.values().all(|other| known.values().all(|one| one.epoch == other.epoch));
                        let mut asked = None;
                        let next = flights.next(|flight| { asked = Some(flight); is_wanted }, |flight| most + flight as u64);
                        match next {
                            None => prop_assert!(!known.iter().any(may) || !alone),
                            Some(Next::GivenUp) => {
                                prop_assert!(!is_wanted);
                                known.get_mut(&asked.unwrap()).unwrap().is_in_vain = true;
                            }
                            Some(Next::Begins(piece)) => {
                                prop_assert!(alone && is_wanted && asked == Some(piece.flight));
                                prop_assert!(may((&piece.flight, &known[&piece.flight])));
                                let is_busy = is_busy(&piece.flight);
                                let known = known.get_mut(&piece.flight).unwrap();
                                match piece.part {
                                    Part::Data { offset, len } => {
                                        prop_assert_eq!(known.open(), Some(true));
                                        prop_assert_eq!(offset, known.begun);
                                        let most = most + piece.flight as u64;
                                        let most = if known.extent.clears { most.min(8 * UNIT) } else { most };
                                        prop_assert_eq!(len, most.min(known.extent.len - known.begun));
                                        known.begun += len;
                                    }
                                    Part::Flush => {
                                        prop_assert_eq!(known.open(), Some(false));
                                        prop_assert!(!is_busy);
                                        known.has_flushed = true;
                                    }
                                }
                                flights.has_begun(piece);
                                under_way.push(piece);
                            }
                        }
                    }
                    Step::End(which, is_well) if !under_way.is_empty() => {
                        let piece = under_way.swap_remove(which.index(under_way.len()));
                        flights.has_ended(piece.flight, is_well);
                        known.get_mut(&piece.flight).unwrap().is_in_vain |= !is_well;
                    }
                    Step::End(..) => {}
                }
                while let Some((flight, is_well)) = flights.next_over() {
                    let known = known.remove(&flight).unwrap();
                    prop_assert!(under_way.iter().all(|piece| piece.flight != flight));
                    prop_assert_eq!(is_well, !known.is_in_vain);
                    prop_assert!(!is_well || known.begun == known.extent.len && known.has_flushed == known.extent.keeps);
                }
                // Nothing that is over stays.
                for (flight, known) in &known {
                    let is_busy = under_way.iter().any(|piece| piece.flight == *flight);
                    prop_assert!(is_busy || known.open().is_some());
                }
            }
        }
    }

    #[test]
    fn what_has_not_begun_does_not_end() {
        let mut flights = Flights::default();
        flights.begin(0, Extent { len: 10, keeps: true, clears: false }, 0);
        flights.has_ended(0, false);
        flights.has_ended(FLIGHTS, true);
        assert_eq!(flights.next_over(), None);
        let part = Part::Data { offset: 0, len: 4 };
        let piece = Piece { flight: 0, part };
        assert_eq!(flights.next(|_| true, |_| 4), Some(Next::Begins(piece)));
        flights.fail(0);
        assert_eq!(flights.next_over(), Some((0, false)));
    }

    #[test]
    fn what_others_ask_for_waits_for_one_piece_that_clears() {
        // Three discards of a terabyte, of a disk that takes as much at a time, and then a read.
        let mut flights = Flights::default();
        for flight in 0..3 {
            flights.begin(flight, Extent { len: 1 << 40, keeps: false, clears: true }, 0);
        }
        let begin = |flights: &mut Flights| match flights.next(|_| true, |_| 1 << 40) {
            Some(Next::Begins(piece)) => {
                flights.has_begun(piece);
                Some((piece.flight, piece.part))
            }
            _ => None,
        };
        let part = Part::Data { offset: 0, len: MOST_CLEARED };
        assert_eq!(begin(&mut flights), Some((0, part)));
        assert_eq!(begin(&mut flights), None, "one is under way");
        flights.begin(3, Extent { len: 4096, ..Extent::default() }, 0);
        assert_eq!(begin(&mut flights), Some((3, Part::Data { offset: 0, len: 4096 })));
        flights.has_ended(0, true);
        let part = Part::Data { offset: MOST_CLEARED, len: MOST_CLEARED };
        assert_eq!(begin(&mut flights), Some((0, part)));
    }
}
