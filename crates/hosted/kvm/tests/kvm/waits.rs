//! Measuring which calls wait for which others.

use std::time::{Duration, Instant};

use mayfly_kvm::{Call, Effort, Waits, measure};

use crate::common::kvm;

/// Every pair that this architecture can make.
fn pairs() -> Vec<(Call, Call)> {
    let of = |after: Call| Call::ALL.into_iter().map(move |call| (after, call));
    Call::ALL.into_iter().flat_map(of).filter(|(after, call)| after.may_precede(*call)).collect()
}

#[test]
fn every_pair_can_be_measured_in_a_vm_of_its_own() {
    let Some(kvm) = kvm() else { return };
    let effort = Effort { fewest: 1, most: 1, until: Instant::now() + Duration::from_secs(600) };
    let measured = measure(&kvm, Duration::from_millis(1), &pairs(), effort);
    assert_eq!(measured.len(), pairs().len());
    for pair in measured {
        if cfg!(target_arch = "x86_64") {
            assert_eq!(pair.error, None, "{} {}", pair.after, pair.call);
            assert_eq!((pair.at_once.len(), pair.later.len()), (1, 1));
        } else {
            assert!(pair.error.is_some() || pair.at_once.len() == 1);
        }
    }
}

#[test]
fn when_the_time_is_up_nothing_more_is_begun() {
    let Some(kvm) = kvm() else { return };
    let effort = Effort { fewest: 3, most: 3, until: Instant::now() };
    let measured = measure(&kvm, Duration::from_millis(1), &pairs(), effort);
    assert!(measured.iter().all(|pair| pair.at_once.is_empty() && pair.error.is_none()));
}

#[test]
fn a_call_of_another_architecture_is_in_no_pair() {
    let has_pit = pairs().iter().any(|(after, call)| [*after, *call].contains(&Call::Pit));
    assert_eq!(has_pit, cfg!(target_arch = "x86_64"));
    assert!(pairs().iter().all(|(after, _)| *after != Call::Close));
    assert_eq!(Waits::of_pairs(&[], Duration::from_millis(4)), Waits::default());
}
