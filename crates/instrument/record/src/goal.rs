//! How long a run goes on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is wanted of a run beyond going once through everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// How far from a headline's median its interval may go to either side, as a share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<f64>,
    /// How many seconds all of it may take; what is gone through once is, even if that takes longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl Goal {
    /// The time that a run with a precision may take by default.
    const SECONDS: f64 = 600.0;

    /// Whether everything is gone through once, and that is all.
    pub fn is_once(self) -> bool {
        self.precision.is_none() && self.seconds.is_none()
    }

    /// How long it may take.
    pub fn time(self) -> Duration {
        let seconds = if self.is_once() { 0.0 } else { self.seconds.unwrap_or(Self::SECONDS) };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_a_precision_and_says_no_time_gets_ten_minutes() {
        let goal = Goal { precision: Some(0.05), seconds: None };
        assert_eq!(goal.time(), Duration::from_secs(600));
        assert_eq!(Goal { seconds: Some(1.5), ..goal }.time(), Duration::from_millis(1500));
        assert_eq!(Goal { seconds: Some(f64::INFINITY), ..goal }.time(), Duration::MAX);
        assert!(Goal::default().is_once() && Goal::default().time().is_zero());
    }
}
