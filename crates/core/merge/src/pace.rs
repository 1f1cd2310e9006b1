//! How much of a processor a merger takes.

use core::time::Duration;

/// A share of one processor, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(u32);

impl Pace {
    /// All of the processor.
    pub const WHOLE: u32 = 1000;

    /// `None` if it is none, or more than all.
    pub const fn try_new(thousandths: u32) -> Option<Self> {
        if thousandths == 0 || thousandths > Self::WHOLE { None } else { Some(Self(thousandths)) }
    }

    /// How long to rest after so much work, to stay within the share.
    pub fn rest(self, worked: Duration) -> Duration {
        worked * (Self::WHOLE - self.0) / self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_rest_are_in_the_proportion_of_the_share() {
        let rest =
            |thousandths| Pace::try_new(thousandths).unwrap().rest(Duration::from_micros(10));
        assert_eq!([1000, 500, 50, 1].map(rest), [0, 10, 190, 9990].map(Duration::from_micros));
        assert_eq!([0, 1001].map(Pace::try_new), [None, None]);
    }
}
