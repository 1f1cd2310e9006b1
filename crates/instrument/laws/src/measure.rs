//! Takes samples.

use mayfly_record::Chance;

use crate::fit::fit;
use crate::kernel::{Failed, Kernel};
use crate::law::Law;
use crate::pair::Pair;
use crate::points::points;
use crate::series::{Kind, Point, Series};

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

/// Measures a pair. In each round each point has one sample; the order of the points is another one in each. `step` is
/// called after each sample.
///
/// # Errors
/// The range is shorter than two decades; a call, or what it needs, failed.
pub fn measure(
    kernel: &mut dyn Kernel,
    pair: Pair,
    options: Options,
    mut step: impl FnMut(),
) -> Result<Measured, Failed> {
    let range = kernel.range(pair.dimension)?;
    let places = points(&range).ok_or_else(|| {
        let (from, to) = (range.start(), range.end());
        Failed(format!("there are {from} to {to}, which is less than two decades"))
    })?;
    let place = |(n, held_out)| Point { n, held_out, ..Point::default() };
    let mut series = Series { points: places.into_iter().map(place).collect() };
    let mut chance = Chance::new(options.seed);
    for _ in 0..options.rounds {
        let mut order: Vec<usize> = (0..series.points.len()).collect();
        chance.shuffle(&mut order);
        for index in order {
            let point = &mut series.points[index];
            let taken = kernel
                .take(pair, point.n)
                .map_err(|Failed(why)| Failed(format!("{} at {}: {why}", pair.name(), point.n)))?;
            point.push(taken);
            step();
        }
    }
    let of = |kind| {
        fit(&series, pair.dimension, kind)
            .ok_or_else(|| Failed("too little was measured".to_owned()))
    };
    let (law, work) = (of(Kind::Time)?, of(Kind::Work)?);
    Ok(Measured { series, law, work })
}
