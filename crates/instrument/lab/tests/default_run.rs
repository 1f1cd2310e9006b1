//! What `mayfly run` does where nothing is asked for.

use std::time::Duration;

use mayfly_lab::{Params, Plan, Selection, experiments};
use mayfly_record::Host;

/// What a run of everything may take.
const MOST: Duration = Duration::from_secs(5 * 60);

/// Rounds below which a median has no interval to speak of.
const FEWEST: u32 = 10;

/// A host whose KVM runs all that there is for it.
fn host() -> Host {
    Host { arch: "x86_64".to_owned(), cpus: 2, hz: Some(250), kvm: true, ..Host::default() }
}

/// What each experiment is estimated to take, by name, with so many rounds; or VMs, which are the rounds of a VM's start.
fn times(rounds: Option<u32>) -> Vec<(&'static str, Duration)> {
    let host = host();
    let of = |experiment: &str| {
        let is_by_vms = experiment == "device-registration";
        let params = Params {
            rounds: rounds.filter(|_| !is_by_vms),
            vms: rounds.filter(|_| is_by_vms),
            ..Params::default()
        };
        let selection =
            Selection { experiments: vec![experiment.to_owned()], params, ..Selection::default() };
        Plan::new(experiments(), &selection, &host).unwrap().needs().time
    };
    experiments().iter().map(|experiment| (experiment.name(), of(experiment.name()))).collect()
}

#[test]
fn all_of_it_is_estimated_to_take_five_minutes_at_most() {
    let times = times(None);
    let sum: Duration = times.iter().map(|(_, time)| *time).sum();
    assert!(sum <= MOST, "{times:?}");
}

#[test]
fn every_experiment_has_ten_rounds_and_is_estimated_by_them() {
    let (ten, twenty) = (times(Some(FEWEST)), times(Some(2 * FEWEST)));
    for ((default, ten), twenty) in times(None).into_iter().zip(ten).zip(twenty) {
        let (name, time) = default;
        assert!(ten.1 <= time, "{name} takes fewer rounds: {time:?}, and {:?} of ten", ten.1);
        assert!(twenty.1 > ten.1.mul_f64(1.5), "{name}: {:?} and {:?}", ten.1, twenty.1);
    }
}
