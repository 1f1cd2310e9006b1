//! Laws that are planted, in a kernel that has nothing else: they are found, and nothing is found that is not there.

#![expect(clippy::cast_sign_loss, reason = "times are no less than 0")]

use std::ops::RangeInclusive;

use mayfly_laws::{
    Call, Dimension, Failed, Kernel, Measured, Options, Pair, Plan, Shape, Taken, measure,
};
use mayfly_record::Chance;

/// Noise as hosts have it: most calls within some per cent of each other, one in twenty several times as long.
struct Planted {
    law: Shape,
    range: RangeInclusive<u64>,
    chance: Chance,
    /// The width of what most calls differ by, in per mille.
    width: u64,
}

impl Planted {
    fn noise(&mut self) -> f64 {
        // A sum of four is near enough to a bell, with a standard deviation of 0.29 of the width.
        let sum: u64 = (0..4).map(|_| self.chance.below(u128::from(self.width) + 1)).sum();
        let usual = 1.0 + (sum as f64 / 2.0 - self.width as f64) / 1000.0;
        let outlier = self.chance.below(20) == 0;
        usual * if outlier { 2.0 + self.chance.below(8) as f64 } else { 1.0 }
    }
}

impl Kernel for Planted {
    fn range(&self, _dimension: Dimension) -> Result<RangeInclusive<u64>, Failed> {
        Ok(self.range.clone())
    }

    fn take(&mut self, _pair: Pair, n: u64) -> Result<Taken, Failed> {
        let time = self.law.at(n as f64).ok_or_else(|| Failed("within the step".to_owned()))?;
        let wall = (time * self.noise()) as u64;
        Ok(Taken { wall, cpu: wall, queued: 0 })
    }
}

const PAIR: Pair = Pair { call: Call::CreateVm, dimension: Dimension::Mappings };

fn measured(kernel: &mut dyn Kernel, pair: Pair, options: Options) -> Result<Measured, Failed> {
    let plan = Plan::of(kernel, pair)?;
    measure(kernel, &plan, options, || {})
}

fn found(law: Shape, range: RangeInclusive<u64>, seed: u64, width: u64) -> Measured {
    let mut kernel = Planted { law, range, chance: Chance::new(seed), width };
    measured(&mut kernel, PAIR, Options { rounds: 9, seed }).unwrap()
}

fn find(seed: u64, law: Shape) -> Measured {
    found(law, 1..=30_000, seed, 250)
}

/// Twenty, three of them constants. What a law grows by is well beyond what noise is.
fn laws(chance: &mut Chance) -> Vec<Shape> {
    let mut number = |from: u64, to: u64| (from + chance.below(u128::from(to - from))) as f64;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(Shape::Constant { base: number(1_000, 5_000_000) });
        all.push(Shape::Logarithm { base: number(1_000, 10_000), factor: number(1_000, 20_000) });
        all.push(Shape::Linear { base: number(1_000, 100_000), factor: number(20, 2_000) });
    }
    for _ in 0..4 {
        let exponent = number(40, 220) / 100.0;
        all.push(Shape::Power {
            base: number(1_000, 20_000),
            factor: number(100, 2_000),
            exponent,
        });
    }
    for _ in 0..3 {
        let at = number(30, 2_000);
        all.push(Shape::Bend { base: number(10_000, 100_000), at, factor: number(50, 1_000) });
        let (before, after) = (number(10_000, 50_000), number(100_000, 5_000_000));
        all.push(Shape::Step { before, last: at, first: at + 1.0, after });
    }
    all.push(Shape::LogLinear { base: number(1_000, 20_000), factor: number(20, 500) });
    assert_eq!(all.len(), 20);
    all
}

/// Whether a law says what was planted: its form, or one that fits as well; of a power, its exponent within 15 %.
fn is_right(planted: Shape, measured: &Measured) -> bool {
    let law = &measured.law;
    let says = |shape: Shape| match (planted, shape) {
        (Shape::Power { exponent, .. }, Shape::Power { exponent: found, .. }) => {
            (found / exponent - 1.0).abs() <= 0.15
        }
        (Shape::Power { exponent, .. }, Shape::Linear { .. }) => (exponent - 1.0).abs() <= 0.15,
        (planted, shape) => planted.is_like(shape),
    };
    law.holds && (says(law.shape) || law.others.iter().any(|other| says(*other)))
}

#[test]
fn of_twenty_laws_eighteen_are_found_and_no_constant_grows() {
    for seed in 0..20 {
        let planted = laws(&mut Chance::new(seed));
        let all: Vec<(Shape, Measured)> =
            (0..).zip(planted).map(|(index, law)| (law, find(1000 * seed + index, law))).collect();
        let wrong: Vec<_> =
            all.iter().filter(|(law, measured)| !is_right(*law, measured)).collect();
        let said: Vec<_> = wrong.iter().map(|(law, found)| (law, &found.law)).collect();
        println!("seed {seed}: {} wrong: {said:#?}", wrong.len());
        assert!(wrong.len() <= 2, "seed {seed}: {said:#?}");
        let constant = Shape::Constant { base: 0.0 };
        let grows = wrong.iter().find(|(law, _)| law.is_like(constant));
        assert!(grows.is_none(), "seed {seed}: {:?}", grows.map(|(law, found)| (law, &found.law)));
    }
}

#[test]
fn no_growth_is_claimed_of_four_hundred_constants() {
    let constant = Shape::Constant { base: 40_000.0 };
    for seed in 0..400 {
        // From a quiet host to one on which most calls differ by a half.
        let measured = found(constant, 1..=1000, seed, 3 * seed / 2);
        assert!(measured.law.shape.is_like(constant), "seed {seed}: {:?}", measured.law);
        assert_eq!(measured.law.growth, None);
    }
}

#[test]
fn what_follows_no_law_is_said_to_follow_none() {
    // Up and down again: no form has that.
    struct Hill;
    impl Kernel for Hill {
        fn range(&self, _dimension: Dimension) -> Result<RangeInclusive<u64>, Failed> {
            Ok(1..=10_000)
        }

        fn take(&mut self, _pair: Pair, n: u64) -> Result<Taken, Failed> {
            let from_top = (n as f64).log10() - 2.0;
            let wall = (10_000.0 + 1e6 * (-4.0 * from_top * from_top).exp()) as u64;
            Ok(Taken { wall, cpu: wall, queued: 0 })
        }
    }
    let measured = measured(&mut Hill, PAIR, Options { rounds: 9, seed: 1 }).unwrap();
    assert!(!measured.law.holds, "{:?}", measured.law);
    assert_eq!(measured.law.millisecond, None);
}

#[test]
fn a_millisecond_is_named_within_the_range_alone() {
    let at = |factor| {
        let law = Shape::Linear { base: 10_000.0, factor };
        found(law, 1..=10_000, 7, 0).law.millisecond
    };
    assert_eq!(at(1.0), None);
    let near = at(1000.0).unwrap();
    assert!((980..=1000).contains(&near), "{near}");
    let slow = Shape::Constant { base: 2e6 };
    assert_eq!(found(slow, 5..=5_000, 7, 0).law.millisecond, Some(5));
}

#[test]
fn a_range_of_less_than_two_decades_is_refused() {
    let mut kernel = Planted {
        law: Shape::Constant { base: 1.0 },
        range: 1..=50,
        chance: Chance::new(0),
        width: 0,
    };
    let Failed(why) = measured(&mut kernel, PAIR, Options { rounds: 9, seed: 0 }).unwrap_err();
    assert_eq!(why, "there are 1 to 50, which is less than two decades");
}

/// A kernel in which calls fail where they are told to, some time on.
struct Failing<F: Fn(u64) -> bool>(u32, F);

impl<F: Fn(u64) -> bool> Kernel for Failing<F> {
    fn range(&self, _dimension: Dimension) -> Result<RangeInclusive<u64>, Failed> {
        Ok(1..=30_000)
    }

    fn take(&mut self, _pair: Pair, n: u64) -> Result<Taken, Failed> {
        self.0 += 1;
        if self.0 > 20 && (self.1)(n) {
            return Err(Failed("EMFILE".into()));
        }
        let time = 10_000 + 100 * n;
        Ok(Taken { wall: time, cpu: time, queued: 0 })
    }
}

#[test]
fn a_point_at_which_the_call_fails_is_left_out_and_the_law_ends_before_it() {
    let options = Options { rounds: 9, seed: 0 };
    let found = measured(&mut Failing(0, |n| n > 3000), PAIR, options).unwrap();
    let numbers: Vec<u64> = found.series.points.iter().map(|point| point.n).collect();
    assert!(numbers.iter().all(|n| *n <= 3000) && numbers.len() == 11, "{numbers:?}");
    let missing: Vec<u64> = found.series.missing.iter().map(|one| one.n).collect();
    assert!(missing.is_sorted() && missing.iter().all(|n| *n > 3000), "{missing:?}");
    assert_eq!((missing.len(), found.series.rounds()), (4, 9));
    assert!(found.series.missing.iter().all(|one| one.why == "EMFILE"));
    // The last that is left was to be held out, and is not: a law is about no number beyond those that it was fitted to.
    assert!(!found.series.points[10].held_out && found.series.points[2].held_out);
    assert!(found.law.holds && found.law.shape.is_like(Shape::Linear { base: 0.0, factor: 0.0 }));
    let millisecond = found.law.millisecond;
    assert_eq!(millisecond, None, "it takes one from 9,900 on, which was not measured");
    // The same at a point in the middle, and at the first.
    let middle = measured(&mut Failing(0, |n| n == 40), PAIR, options).unwrap();
    assert_eq!((middle.series.points.len(), middle.series.missing[0].n), (14, 40));
    let first = measured(&mut Failing(0, |n| n == 1), PAIR, options).unwrap();
    assert_eq!(first.series.range(), Some((2, 30_000)));
}

#[test]
fn calls_that_fail_at_too_many_points_end_the_pair_with_what_failed_and_where() {
    let mut kernel = Failing(0, |_| true);
    let plan = Plan::of(&kernel, PAIR).unwrap();
    assert_eq!(plan.samples(9), 135);
    let mut steps = 0;
    let failed = measure(&mut kernel, &plan, Options { rounds: 9, seed: 0 }, || steps += 1);
    let Failed(why) = failed.unwrap_err();
    assert!(why.starts_with("create-vm/mappings at ") && why.ends_with(": EMFILE"), "{why}");
    assert!((20..40).contains(&steps), "{steps}");
    let short = measured(&mut Failing(0, |n| n > 80), PAIR, Options { rounds: 9, seed: 0 });
    assert!(short.is_err(), "less than two decades are left");
}

#[test]
fn a_range_ends_where_it_is_told_to_if_two_decades_are_left() {
    let kernel = Failing(0, |_| true);
    let mut measured = Failing(0, |n| n > 300);
    let plan = Plan::up_to(300, &kernel, PAIR).unwrap();
    let options = Options { rounds: 9, seed: 0 };
    let Measured { series, .. } = measure(&mut measured, &plan, options, || {}).unwrap();
    assert_eq!((series.range(), series.missing.len()), (Some((1, 300)), 0));
    let Failed(why) = Plan::up_to(99, &kernel, PAIR).unwrap_err();
    assert_eq!(why, "there are 1 to 99, which is less than two decades");
}

#[test]
fn a_call_that_waits_for_a_moment_is_told_from_one_that_does_not() {
    let pair = Pair { call: Call::CloseVm, dimension: Dimension::Age };
    for seed in 0..50 {
        let end = 3e6 + 4e5 * seed as f64;
        let law = Shape::Wait { base: 250_000.0, end };
        let mut kernel =
            Planted { law, range: 100..=50_000, chance: Chance::new(seed), width: 100 };
        let options = Options { rounds: 9, seed };
        let found = measured(&mut kernel, pair, options).unwrap().law;
        match found.shape {
            Shape::Wait { end: found, .. } => assert!((found / end - 1.0).abs() < 0.1, "{found}"),
            other => panic!("seed {seed}: {other:?}"),
        }
        kernel.law = Shape::Constant { base: 250_000.0 };
        let found = measured(&mut kernel, pair, options).unwrap().law;
        assert!(found.shape.is_like(Shape::Constant { base: 0.0 }), "seed {seed}: {found:?}");
    }
}

#[test]
fn a_call_that_falls_takes_no_millisecond_from_somewhere_on() {
    let wait = Shape::Wait { base: 100_000.0, end: 9e6 };
    assert_eq!(wait.reaches(1e6, 100, 50_000), None);
    let step = |before, after| Shape::Step { before, last: 50.0, first: 60.0, after };
    assert_eq!(step(5e6, 1e5).reaches(1e6, 1, 1000), None);
    assert_eq!(step(1e5, 5e6).reaches(1e6, 1, 1000), Some(60));
}

/// Calls that sleep until the next tick, or one time in two: their medians jump, whatever there is of anything.
#[test]
fn no_growth_is_claimed_of_calls_that_sleep_for_a_random_part_of_a_tick() {
    struct Sleeping(Chance, bool);
    impl Kernel for Sleeping {
        fn range(&self, _dimension: Dimension) -> Result<RangeInclusive<u64>, Failed> {
            Ok(1..=4096)
        }

        fn take(&mut self, _pair: Pair, _n: u64) -> Result<Taken, Failed> {
            let cpu = 130_000 + self.0.below(10_000);
            let slept = if self.1 { self.0.below(4_000_000) } else { 4_000_000 * self.0.below(2) };
            Ok(Taken { wall: cpu + slept, cpu, queued: 0 })
        }
    }
    let mut claimed = 0;
    for seed in 0..150 {
        for is_even in [false, true] {
            let mut kernel = Sleeping(Chance::new(seed), is_even);
            let found = measured(&mut kernel, PAIR, Options { rounds: 9, seed }).unwrap();
            let constant = Shape::Constant { base: 0.0 };
            claimed += u32::from(found.law.holds && !found.law.shape.is_like(constant));
            assert!(found.work.shape.is_like(constant) && found.work.holds, "{:?}", found.work);
        }
    }
    assert!(claimed <= 1, "{claimed} of 300");
}

/// A preemption before the clock is read or after it counts as time in the queue, though the call was not in it.
#[test]
fn time_in_the_queue_that_was_not_in_the_call_does_not_spoil_the_law() {
    struct Late(Chance);
    impl Kernel for Late {
        fn range(&self, _dimension: Dimension) -> Result<RangeInclusive<u64>, Failed> {
            Ok(1..=30_000)
        }

        fn take(&mut self, _pair: Pair, n: u64) -> Result<Taken, Failed> {
            let cpu = (150_000 + 160 * n) * (950 + self.0.below(100)) / 1000;
            let queued = if self.0.below(5) == 0 { 4_000_000 } else { 0 };
            Ok(Taken { wall: cpu, cpu, queued })
        }
    }
    for seed in 0..100 {
        let mut kernel = Late(Chance::new(seed));
        let found = measured(&mut kernel, PAIR, Options { rounds: 9, seed }).unwrap().law;
        let [low, high] = found.growth.expect("it grows");
        assert!(found.holds && high / low < 2.0, "seed {seed}: {found:?}");
    }
}
