//! Takes samples.

use mayfly_record::Chance;

use crate::fit::fit;
use crate::kernel::{Failed, Kernel};
use crate::law::Law;
use crate::pair::Pair;
use crate::points::{points, suffice};
use crate::series::{Kind, Missing, Point, Series};

/// Rounds below which a median says too little.
pub const FEWEST_ROUNDS: u32 = 5;

/// How a pair is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many samples there are of each point.
    pub rounds: u32,
    /// Decides the order of the points in each round.
    pub seed: u64,
}

/// What was measured of a pair, and what it comes to.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The samples.
    pub series: Series,
    /// The law of its time.
    pub law: Law,
    /// The law of its work.
    pub work: Law,
}

/// Where a pair is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    pair: Pair,
    /// Each number, and whether it is held out.
    places: Vec<(u64, bool)>,
}

impl Plan {
    /// As many points as `kernel` has room for.
    ///
    /// # Errors
    /// There can be none, or the range is shorter than two decades.
    pub fn of(kernel: &dyn Kernel, pair: Pair) -> Result<Self, Failed> {
        Self::up_to(u64::MAX, kernel, pair)
    }

    /// The same with no number beyond `most`: where time is short, as in an emulated machine.
    ///
    /// # Errors
    /// As of [`of`](Self::of); also where `most` leaves less than two decades.
    pub fn up_to(most: u64, kernel: &dyn Kernel, pair: Pair) -> Result<Self, Failed> {
        let all = kernel.range(pair.dimension)?;
        let range = *all.start()..=most.min(*all.end());
        let places = points(&range).ok_or_else(|| {
            let (from, to) = (range.start(), range.end());
            Failed(format!("there are {from} to {to}, which is less than two decades"))
        })?;
        Ok(Self { pair, places })
    }

    /// How many samples there are in so many rounds.
    pub fn samples(&self, rounds: u32) -> u64 {
        self.places.len() as u64 * u64::from(rounds)
    }
}

/// Measures a pair. In each round each point has one sample; the order of the points is another one in each. `step` is
/// called after each sample. A point at which the call fails is left out from then on, and the others are measured as long
/// as a law can be fitted to them.
///
/// # Errors
/// The call, or what it needs, failed at so many points that too little is left.
pub fn measure(
    kernel: &mut dyn Kernel,
    plan: &Plan,
    options: Options,
    mut step: impl FnMut(),
) -> Result<Measured, Failed> {
    let pair = plan.pair;
    let place = |&(n, held_out): &(u64, bool)| Point { n, held_out, ..Point::default() };
    let mut points: Vec<Point> = plan.places.iter().map(place).collect();
    let mut missing: Vec<Missing> = Vec::new();
    let mut chance = Chance::new(options.seed);
    for _ in 0..options.rounds {
        let mut order: Vec<u64> = points.iter().map(|point| point.n).collect();
        chance.shuffle(&mut order);
        for n in order {
            match kernel.take(pair, n) {
                Ok(taken) => {
                    points.iter_mut().filter(|point| point.n == n).for_each(|one| one.push(taken));
                }
                Err(Failed(why)) => {
                    points.retain(|point| point.n != n);
                    missing.push(Missing { n, why });
                    are_enough(pair, &mut points, &missing)?;
                }
            }
            step();
        }
    }
    missing.sort_by_key(|one| one.n);
    let series = Series { points, missing };
    let of = |kind| {
        fit(&series, pair.dimension, kind)
            .ok_or_else(|| Failed("too little was measured".to_owned()))
    };
    let (law, work) = (of(Kind::Time)?, of(Kind::Work)?);
    Ok(Measured { series, law, work })
}

/// Whether a law can be fitted to the points that are left, and has to predict some. The first and the last of them are
/// fitted to: no law is about numbers beyond those.
fn are_enough(pair: Pair, points: &mut [Point], missing: &[Missing]) -> Result<(), Failed> {
    if let [first, .., last] = points {
        (first.held_out, last.held_out) = (false, false);
    }
    let places: Vec<(u64, bool)> = points.iter().map(|point| (point.n, point.held_out)).collect();
    match missing.first() {
        Some(Missing { n, why }) if !suffice(&places) => {
            Err(Failed(format!("{} at {n}: {why}", pair.name())))
        }
        _ => Ok(()),
    }
}
