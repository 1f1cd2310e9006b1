//! Fits shapes to a series, and chooses.
//!
//! Errors are relative: a point's error counts in parts of the time that was measured there, so that the points of the first
//! decade count as much as those of the last. The shape is chosen by Akaike's information criterion, corrected for few
//! points (Hurvich and Tsai, "Regression and time series model selection in small samples", 1989): a shape with one number
//! more has to be much closer.
//!
//! Growth is claimed only if three things hold: the criterion is for it by a wide margin, the times differ by a factor that
//! somebody would mind ([`GROWTH`]), and they still do in 97.5 % of what comes when rounds are drawn again, with
//! replacement.

use mayfly_record::{Chance, middle};

use crate::law::{HELD_OUT_BOUND, Law};
use crate::pair::Dimension;
use crate::points::FEWEST;
use crate::series::{Kind, Series, median};
use crate::shape::{AGE, Shape};

/// What is better by less than this is as good.
const AS_GOOD: f64 = 2.0;
/// By how much the criterion has to be for growth.
const MARGIN: f64 = 10.0;
/// Times that differ by less than this factor are one time.
const GROWTH: f64 = 1.25;
/// The same of the times that come when rounds are drawn again.
const GROWTH_DRAWN: f64 = 1.2;
/// Errors below this are as good as none: no clock and no median are better.
const FLOOR: f64 = 0.01;
/// How often rounds are drawn again.
const DRAWS: usize = 200;
/// So that the same samples give the same law.
const SEED: u64 = 0x6c61_7773;

/// A point that shapes are fitted to.
type Fitted = (f64, f64);

/// The sum of squared relative errors. Nothing, where the shape says nothing of a point.
fn error(shape: Shape, points: &[Fitted]) -> Option<f64> {
    let of = |&(n, time): &Fitted| Some(((shape.at(n)? - time) / time).powi(2));
    points.iter().map(of).sum()
}

/// The information criterion, the smaller the better.
fn criterion(shape: Shape, points: &[Fitted]) -> Option<f64> {
    let count = points.len() as f64;
    // The error's own size is a number more.
    let parameters = shape.parameters() as f64 + 1.0;
    let mean = (error(shape, points)? / count).max(FLOOR * FLOOR);
    let correction = 2.0 * parameters * (parameters + 1.0) / (count - parameters - 1.0).max(0.5);
    Some(count * mean.ln() + 2.0 * parameters + correction)
}

/// The constant with the least relative error.
fn constant(points: &[Fitted]) -> f64 {
    let (one, two) = points
        .iter()
        .fold((0.0, 0.0), |(one, two), (_, time)| (one + 1.0 / time, two + 1.0 / (time * time)));
    one / two
}

/// `base` and `factor` of `base + factor * of(n)` with the least relative error, neither of them below 0.
fn line(points: &[Fitted], of: impl Fn(f64) -> f64) -> Option<(f64, f64)> {
    let [mut w, mut x, mut y, mut xx, mut xy] = [0.0; 5];
    for &(n, time) in points {
        let (weight, at) = (1.0 / (time * time), of(n));
        w += weight;
        x += weight * at;
        y += weight * time;
        xx += weight * at * at;
        xy += weight * at * time;
    }
    let determinant = w * xx - x * x;
    if determinant <= f64::EPSILON * w * xx {
        return None;
    }
    let (base, factor) = ((y * xx - x * xy) / determinant, (w * xy - x * y) / determinant);
    // Of those that begin at 0, the one with the least error.
    let (base, factor) = if base < 0.0 { (0.0, xy / xx) } else { (base, factor) };
    (factor > 0.0).then_some((base, factor))
}

/// The candidate with the least error.
fn least(points: &[Fitted], all: impl Iterator<Item = Shape>) -> Option<Shape> {
    let of = |shape: Shape| Some((error(shape, points)?, shape));
    all.filter_map(of).min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, shape)| shape)
}

/// By tenths first, then by hundredths.
fn power(points: &[Fitted]) -> Option<Shape> {
    let of = |hundredths: i32| {
        let exponent = f64::from(hundredths) / 100.0;
        let (base, factor) = line(points, |n| n.powf(exponent))?;
        Some(Shape::Power { base, factor, exponent })
    };
    let Shape::Power { exponent, .. } = least(points, (10..=300).step_by(10).filter_map(of))?
    else {
        return None;
    };
    let near = (exponent * 100.0).round() as i32;
    least(points, ((near - 9).max(10)..=near + 9).filter_map(of))
}

/// Where growth may begin: between the second point and the last but one, at so many places for each two of them.
fn bend(points: &[Fitted]) -> Option<Shape> {
    const PLACES: u32 = 16;
    let inner = points.get(1..points.len().checked_sub(1)?)?;
    let places = inner.windows(2).flat_map(|two| {
        let (from, to) = (two[0].0, two[1].0);
        let part = move |place: u32| f64::from(place) / f64::from(PLACES);
        (0..PLACES).map(move |place| from * (to / from).powf(part(place)))
    });
    let of = |at: f64| {
        let (base, factor) = line(points, |n| (n - at).max(0.0))?;
        (base > 0.0).then_some(Shape::Bend { base, at, factor })
    };
    least(points, places.filter_map(of))
}

/// The moment that is waited for is between the first age and the last.
fn wait(points: &[Fitted]) -> Option<Shape> {
    const PLACES: u32 = 400;
    let (from, to) = (points.first()?.0, points.last()?.0);
    let of = |place: u32| {
        let end = AGE * from * (to / from).powf(f64::from(place) / f64::from(PLACES));
        let late: Vec<Fitted> = points.iter().copied().filter(|(n, _)| AGE * n >= end).collect();
        (late.len() >= 2).then(|| Shape::Wait { base: constant(&late), end })
    };
    least(points, (0..=PLACES).filter_map(of))
}

/// Two points at least are on either side.
fn step(points: &[Fitted]) -> Option<Shape> {
    let of = |cut: usize| {
        let (before, after) = points.split_at_checked(cut)?;
        let (last, first) = (before.last()?.0, after.first()?.0);
        let (before, after) = (constant(before), constant(after));
        Some(Shape::Step { before, last, first, after })
    };
    least(points, (2..points.len().saturating_sub(1)).filter_map(of))
}

/// The best of the form that `like` has.
fn again(like: Shape, points: &[Fitted]) -> Option<Shape> {
    let two = |of: fn(f64) -> f64, make: fn(f64, f64) -> Shape| {
        line(points, of).map(|(base, factor)| make(base, factor))
    };
    match like {
        Shape::Constant { .. } => Some(Shape::Constant { base: constant(points) }),
        Shape::Logarithm { .. } => two(f64::ln, |base, factor| Shape::Logarithm { base, factor }),
        Shape::Linear { .. } => two(|n| n, |base, factor| Shape::Linear { base, factor }),
        Shape::LogLinear { .. } => {
            two(|n| n * n.ln(), |base, factor| Shape::LogLinear { base, factor })
        }
        Shape::Power { .. } => power(points),
        Shape::Bend { .. } => bend(points),
        Shape::Wait { .. } => wait(points),
        Shape::Step { .. } => step(points),
    }
}

/// The middle 95 % of what is drawn.
pub(crate) fn interval(mut drawn: Vec<f64>) -> Option<[f64; 2]> {
    drawn.sort_by(f64::total_cmp);
    middle(&drawn)
}

/// The points that are fitted to, where each round counts as often as `drawn` says.
fn fitted(series: &Series, kind: Kind, drawn: &[usize]) -> Vec<Fitted> {
    let inner = series.points.iter().filter(|point| !point.held_out);
    let of = |times: &[u64]| median(drawn.iter().map(|round| times[*round]).collect());
    inner.map(|point| (point.n as f64, (of(&point.of(kind)) as f64).max(1.0))).collect()
}

/// What has the form of `like` where rounds are drawn again, as many as there are, with replacement.
pub(crate) fn drawn(series: &Series, kind: Kind, like: Shape) -> Vec<Shape> {
    let rounds = series.rounds();
    let mut chance = Chance::new(SEED);
    let one = |_| {
        let rounds: Vec<usize> =
            (0..rounds).map(|_| chance.below(rounds as u128) as usize).collect();
        again(like, &fitted(series, kind, &rounds))
    };
    (0..DRAWS).filter_map(one).collect()
}

/// The law of a series against `dimension`. Nothing, if too little was measured for any.
pub fn fit(series: &Series, dimension: Dimension, kind: Kind) -> Option<Law> {
    let rounds = series.rounds();
    let points = fitted(series, kind, &(0..rounds).collect::<Vec<_>>());
    if rounds == 0 || points.len() < FEWEST {
        return None;
    }
    let best_of = |form: Shape| again(form, &points);
    let of_age = (dimension == Dimension::Age && kind == Kind::Time).then_some(Shape::WAIT);
    let mut ranked: Vec<(f64, Shape)> = Shape::FORMS
        .into_iter()
        .chain(of_age)
        .filter_map(best_of)
        .filter(|shape| dimension != Dimension::Age || shape.is_of_age())
        .filter_map(|shape| Some((criterion(shape, &points)?, shape)))
        .collect();
    ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
    let flat = Shape::Constant { base: constant(&points) };
    let &(best, shape) = ranked.first()?;
    let drawn = drawn(series, kind, shape);
    let growth = |shape: Shape| shape.growth(points.iter().map(|(n, _)| *n));
    let growths = interval(drawn.iter().map(|drawn| growth(*drawn)).collect());
    let grows = best + MARGIN < criterion(flat, &points)?
        && growth(shape) >= GROWTH
        && growths.is_some_and(|[low, _]| low >= GROWTH_DRAWN);
    let (shape, unsure) = if grows { (shape, None) } else { (flat, Some(shape)) };
    let exponents = drawn.into_iter().filter_map(|drawn| match drawn {
        Shape::Power { exponent, .. } => Some(exponent),
        _ => None,
    });
    let exponent = if grows { interval(exponents.collect()) } else { None };
    // What is linear in some of the draws may be so.
    let is_linear = exponent.is_some_and(|[low, high]| low <= 1.0 && high >= 1.0);
    let others = ranked.into_iter().filter(|(at, other)| {
        let fits = *at < best + AS_GOOD || is_linear && matches!(other, Shape::Linear { .. });
        grows && fits && !other.is_like(shape) && !other.is_like(flat)
    });
    let held_out = series
        .points
        .iter()
        .filter(|point| point.held_out)
        .map(|point| shape.misses(point.n as f64, (median(point.of(kind)) as f64).max(1.0)));
    let held_out = held_out.fold(0.0, f64::max);
    let (from, to) = series.range()?;
    let holds = held_out <= HELD_OUT_BOUND;
    Some(Law {
        shape,
        others: others.map(|(_, other)| other).collect(),
        exponent,
        unsure: unsure.filter(|unsure| !unsure.is_like(flat)),
        growth: growths.filter(|_| grows),
        held_out,
        holds,
        millisecond: shape.reaches(1e6, from, to).filter(|_| holds),
    })
}
