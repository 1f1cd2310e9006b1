//! A logarithmic axis.

use mayfly_record::{Unit, units};

/// From a number below all others to one above them, by powers of ten. What is below one stands at its beginning.
pub(crate) struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    /// One that has all of `numbers` on it.
    pub(crate) fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let logs = numbers.into_iter().map(log);
        let (low, high) =
            logs.fold((f64::MAX, 0_f64), |(low, high), log| (low.min(log), high.max(log)));
        let low = if low > high { 0 } else { low.floor() as i32 };
        Self { low, high: (high.ceil() as i32).max(low + 1) }
    }

    /// Where a number stands: 0 at the beginning, 1 at the end.
    pub(crate) fn at(&self, number: u64) -> f64 {
        let length = f64::from(self.high - self.low);
        ((log(number) - f64::from(self.low)) / length).clamp(0.0, 1.0)
    }

    /// The powers of ten on it, or every other, or every third, so that there are seven at most.
    pub(crate) fn ticks(&self, unit: &Unit) -> Vec<(f64, String)> {
        let step = (self.high - self.low).unsigned_abs() as usize / 7 + 1;
        (self.low..=self.high)
            .step_by(step)
            .map(|power| {
                let number = 10_u64.saturating_pow(power.unsigned_abs());
                (self.at(number), units::rounded(&unit.shown(number)))
            })
            .collect()
    }
}

fn log(number: u64) -> f64 {
    (number.max(1) as f64).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_in_their_order_between_the_ends() {
        let axis = Axis::of([7, 900, 45_000]);
        let places: Vec<f64> = [7, 900, 45_000].map(|number| axis.at(number)).to_vec();
        assert!(places.is_sorted() && places[0] > 0.0 && places[2] < 1.0, "{places:?}");
        let labels: Vec<String> =
            axis.ticks(&Unit::Nanoseconds).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["1 ns", "10 ns", "100 ns", "1 us", "10 us", "100 us"]);
    }

    #[test]
    fn there_are_seven_ticks_at_most_and_nothing_breaks_at_the_ends() {
        for numbers in [&[0, u64::MAX][..], &[0], &[], &[1, 10_u64.pow(12)]] {
            let axis = Axis::of(numbers.iter().copied());
            assert!((2..=7).contains(&axis.ticks(&Unit::Count).len()), "{numbers:?}");
            assert!(numbers.iter().all(|number| (0.0..=1.0).contains(&axis.at(*number))));
        }
    }
}
