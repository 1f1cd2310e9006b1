//! A law and its points, on two logarithmic axes.

use maud::{Markup, html};
use mayfly_record::units::{duration, rounded};

use crate::document::Entry;
use crate::law::Law;
use crate::pair::Dimension;
use crate::series::Point;
use crate::shape::{Shape, whole};
use crate::text::things;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 30.0;
/// The line of a law is drawn in so many pieces.
const PIECES: u32 = 96;
/// Marks of an axis at most.
const MARKS: usize = 7;

/// A logarithmic axis, in tens.
#[derive(Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// One from the least of `numbers` to the greatest.
    fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let logs = numbers.map(log);
        let (low, high) =
            logs.fold((f64::INFINITY, 0.0_f64), |(low, high), log| (low.min(log), high.max(log)));
        let low = low.min(high);
        Self { low, high: high.max(low + 0.1) }
    }

    /// The same between whole powers of ten.
    fn whole(self) -> Self {
        let low = self.low.floor();
        Self { low, high: self.high.ceil().max(low + 1.0) }
    }

    /// Where a number stands: 0 at the beginning, 1 at the end.
    fn at(self, number: f64) -> f64 {
        ((log(number) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The powers of ten on it; of many, every other, or every third.
    fn marks(self) -> Vec<f64> {
        let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
        let step = (last - first).max(0).unsigned_abs() as usize / MARKS + 1;
        (first..=last).step_by(step).map(|power| 10_f64.powi(power)).collect()
    }
}

/// What is below 1 stands at 1, and what is no number that can be measured at the greatest that can.
fn log(number: f64) -> f64 {
    number.max(1.0).min(u64::MAX as f64).log10()
}

/// Where things stand in the picture.
#[derive(Clone, Copy)]
struct Places {
    numbers: Axis,
    times: Axis,
}

impl Places {
    fn x(self, n: f64) -> f64 {
        LEFT + self.numbers.at(n) * (WIDTH - LEFT - RIGHT)
    }

    fn y(self, time: f64) -> f64 {
        TOP + (1.0 - self.times.at(time)) * (HEIGHT - TOP - BOTTOM)
    }
}

pub(super) fn plot(entry: &Entry, law: &Law) -> Markup {
    let points = &entry.series.points;
    let shown: Vec<(f64, f64)> = line(points, law.shape).into_iter().flatten().collect();
    let middles = points.iter().map(|point| spread(point)[1]);
    let times = Axis::of(middles.chain(shown.iter().map(|(_, time)| *time))).whole();
    let places = Places { numbers: Axis::of(points.iter().map(|point| point.n as f64)), times };
    let pair = entry.pair;
    let title = format!("{}: the time of a call against {}", pair.name(), pair.dimension.about());
    html! {
        figure {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img"
                aria-label=(format!("{title}. The points are in the table below.")) {
                title { (title) }
                @for mark in places.times.marks() {
                    @let y = places.y(mark);
                    line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(tenths(y)) y2=(tenths(y)) {}
                    text x=(LEFT - 6.0) y=(tenths(y + 4.0)) text-anchor="end" { (rounded(&duration(whole(mark)))) }
                }
                @for mark in places.numbers.marks() {
                    @let x = places.x(mark);
                    line.grid x1=(tenths(x)) x2=(tenths(x)) y1=(TOP) y2=(HEIGHT - BOTTOM) {}
                    text x=(tenths(x)) y=(HEIGHT - 10.0) text-anchor="middle" { (number(mark, pair.dimension)) }
                }
                @if law.holds {
                    @for part in line(points, law.shape) {
                        polyline.law points=(path(&part, places)) {}
                    }
                }
                @for point in points {
                    @let [low, middle, high] = spread(point).map(|time| tenths(places.y(time)));
                    @let x = tenths(places.x(point.n as f64));
                    line.spread x1=(x) x2=(x) y1=(low) y2=(high) {}
                    circle class=(if point.held_out { "held" } else { "point" }) cx=(x) cy=(middle) r="4" {
                        title { (told(point, pair.dimension)) }
                    }
                }
            }
            figcaption {
                span.point { "●" } " a median, with the middle half of its samples; " span.held { "○" } " held out"
                @if law.holds { "; " span.law { "—" } " the law" } "."
            }
        }
    }
}

fn told(point: &Point, dimension: Dimension) -> String {
    let held = if point.held_out { ", held out" } else { "" };
    format!("{}: {}{held}", things(point.n as f64, dimension), duration(point.time()))
}

/// A number on its axis.
fn number(n: f64, dimension: Dimension) -> String {
    match dimension {
        Dimension::Age => rounded(&duration(whole(n).saturating_mul(1000))),
        _ => mayfly_record::units::grouped(whole(n)),
    }
}

/// The law from the first number that was measured to the last, and no further: in two parts where it has a step.
fn line(points: &[Point], shape: Shape) -> Vec<Vec<(f64, f64)>> {
    let [first, .., last] = points else { return Vec::new() };
    let (from, to) = (first.n as f64, last.n as f64);
    let place = |piece: u32| from * (to / from).powf(f64::from(piece) / f64::from(PIECES));
    // Where it changes its direction it does so in a corner.
    let corners = match shape {
        Shape::Bend { at, .. } => vec![at],
        Shape::Wait { base, end } => vec![(end - base) / crate::shape::AGE],
        Shape::Step { last, first, .. } => vec![last, first],
        _ => Vec::new(),
    };
    let corners = corners.into_iter().filter(|corner| (from..=to).contains(corner));
    let mut numbers: Vec<f64> = (0..=PIECES).map(place).chain(corners).collect();
    numbers.sort_by(f64::total_cmp);
    let parts = numbers.into_iter().map(|n| Some((n, shape.at(n)?))).collect::<Vec<_>>();
    parts.split(Option::is_none).map(|part| part.iter().copied().flatten().collect()).collect()
}

fn path(part: &[(f64, f64)], places: Places) -> String {
    let point = |(n, time): &(f64, f64)| format!("{:.1},{:.1}", places.x(*n), places.y(*time));
    part.iter().map(point).collect::<Vec<_>>().join(" ")
}

/// The quartiles of a point's times.
fn spread(point: &Point) -> [f64; 3] {
    let mut times = point.times();
    times.sort_unstable();
    let at = |share: usize| mayfly_record::nearest_rank(&times, share).unwrap_or(0) as f64;
    [at(250), at(500), at(750)]
}

fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_few_and_on_the_axis_whatever_was_measured() {
        for numbers in [&[1.0, 30_000.0][..], &[0.0, 1.8e19], &[5.0], &[], &[100.0, 50_000.0]] {
            for axis in
                [Axis::of(numbers.iter().copied()), Axis::of(numbers.iter().copied()).whole()]
            {
                assert!(axis.marks().len() <= MARKS + 1, "{numbers:?}");
                assert!(axis.marks().iter().all(|mark| (0.0..=1.0).contains(&axis.at(*mark))));
            }
        }
        assert_eq!(Axis::of([7.0, 45_000.0].into_iter()).marks(), [10.0, 100.0, 1e3, 1e4]);
    }

    #[test]
    fn a_law_is_drawn_within_what_was_measured_and_in_two_parts_around_a_step() {
        let points = [1, 40, 60, 1000].map(|n| Point { n, ..Point::default() });
        let drawn = |shape| line(&points, shape);
        let linear = drawn(Shape::Linear { base: 5.0, factor: 2.0 });
        assert_eq!((linear.len(), linear[0][0]), (1, (1.0, 7.0)));
        assert!(linear[0].iter().all(|(n, _)| (1.0..=1000.001).contains(n)));
        let step = drawn(Shape::Step { before: 5.0, last: 40.0, first: 60.0, after: 9.0 });
        let ends: Vec<f64> = step.iter().filter_map(|part| Some(part.last()?.1)).collect();
        assert_eq!(ends, [5.0, 9.0]);
        assert!(step.iter().flatten().any(|(n, _)| (*n - 40.0).abs() < 1e-9));
    }
}
