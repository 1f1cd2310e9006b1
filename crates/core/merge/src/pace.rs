//! How much of a processor a merger takes.

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

    /// How long to rest after so much work, to stay within the share: in the unit of the work.
    pub fn rest(self, worked: u64) -> u64 {
        let rest = u128::from(worked) * u128::from(Self::WHOLE - self.0) / u128::from(self.0);
        u64::try_from(rest).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_rest_are_in_the_proportion_of_the_share() {
        let rest = |thousandths| Pace::try_new(thousandths).unwrap().rest(10);
        assert_eq!([1000, 500, 50, 1].map(rest), [0, 10, 190, 9990]);
        assert_eq!(Pace::try_new(1).unwrap().rest(u64::MAX), u64::MAX);
        assert_eq!([0, 1001].map(Pace::try_new), [None, None]);
    }
}
