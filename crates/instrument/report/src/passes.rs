//! How often an experiment was gone through, and what that came to.

use mayfly_record::{Description, Goal, units};

/// In a sentence, where more than once was wanted.
pub(crate) fn told(known: &Description, goal: Option<Goal>) -> Option<String> {
    let passes = known.passes.as_ref()?;
    let times = match passes.count {
        1 => "Measured once".to_owned(),
        count => format!("Measured {count} times"),
    };
    let wanted = goal.and_then(|goal| goal.precision).map(units::percent);
    let widest = passes.widest.as_ref().map(|widest| {
        let known = widest.half_width.map_or_else(
            || "has fewer than six rounds".to_owned(),
            |width| format!("is known to {} only", units::percent(width)),
        );
        format!("{} {known}", widest.what)
    });
    Some(match (wanted, widest) {
        (Some(wanted), _) if passes.reached => {
            format!("{times}: every median below is known to {wanted}.")
        }
        (Some(wanted), Some(widest)) => {
            format!("{times}, until time was up: {widest}, and {wanted} was wanted.")
        }
        (_, Some(widest)) => format!("{times}: {widest}."),
        (_, None) => format!("{times}."),
    })
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Passes, Widest};

    use super::*;

    #[test]
    fn it_says_how_often_and_whether_that_was_enough() {
        let told = |count, reached, half_width: Option<f64>, precision| {
            let widest = Some(Widest { what: "destroy of kernel on kvm".into(), half_width });
            let known = Description {
                name: "teardown".into(),
                passes: Some(Passes { count, reached, widest }),
                ..Description::default()
            };
            super::told(&known, Some(Goal { precision, seconds: None })).unwrap()
        };
        assert_eq!(
            told(4, true, Some(0.03), Some(0.05)),
            "Measured 4 times: every median below is known to 5.0%."
        );
        assert_eq!(
            told(1, false, Some(0.12), Some(0.05)),
            "Measured once, until time was up: destroy of kernel on kvm is known to 12% only, and 5.0% was wanted."
        );
        assert_eq!(
            told(2, false, None, None),
            "Measured 2 times: destroy of kernel on kvm has fewer than six rounds."
        );
    }
}
