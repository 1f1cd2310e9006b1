//! The division of processor time, on a machine that is made up, beside the naive model of it.

mod fluid;
mod simulator;

use mayfly_hypervisor::turns::Share;
use proptest::prelude::*;

use simulator::{Habit, MILLISECOND, Outcome, SECOND, Vm, run};

/// How far a VM may be from its part, in processors: 5 points of one processor.
const POINTS: f64 = 0.05;

fn parts(processors: usize, vms: &[Vm]) -> Vec<f64> {
    let wants: Vec<_> = vms.iter().map(|vm| (vm.weight, vm.most())).collect();
    fluid::shares(processors as f64, &wants)
}

/// How far each window of each VM is from its part at most.
fn furthest(outcome: &Outcome, parts: &[f64], from: u64) -> f64 {
    let of = |(vm, &part): (usize, &f64)| {
        let windows = outcome.windows(vm, from);
        windows.into_iter().map(|is| (is - part).abs()).fold(0.0, f64::max)
    };
    parts.iter().enumerate().map(of).fold(0.0, f64::max)
}

/// Runs VMs that spin, and checks each window of each.
fn divides(processors: usize, vms: &[Vm]) {
    let outcome = run(processors, vms, 4 * SECOND);
    let parts = parts(processors, vms);
    let furthest = furthest(&outcome, &parts, 0);
    assert!(furthest <= POINTS, "{furthest} from {parts:?} on {processors} processors: {vms:?}");
}

#[test]
fn one_vcpu_has_its_part_beside_64() {
    for processors in [1, 2, 4] {
        divides(processors, &[Vm::spinning(1), Vm::spinning(64)]);
    }
}

#[test]
fn one_vcpu_has_a_whole_processor_of_two_beside_64() {
    let outcome = run(2, &[Vm::spinning(1), Vm::spinning(64)], 4 * SECOND);
    for window in outcome.windows(0, 0) {
        assert!((window - 1.0).abs() <= POINTS, "{window}");
    }
}

#[test]
fn weights_of_one_to_three_divide_so() {
    for processors in [1, 2, 4] {
        for counts in [(4, 4), (64, 4), (4, 64), (1, 64), (64, 1)] {
            let (light, heavy) = (Vm::spinning(counts.0), Vm::spinning(counts.1).weight(300));
            divides(processors, &[light, heavy]);
        }
    }
}

#[test]
fn a_vm_with_a_cap_has_that_and_no_more_even_of_an_idle_machine() {
    for processors in [1, 2, 4] {
        for cap in [10, 30, 50, 100, 150] {
            divides(processors, &[Vm::spinning(8).cap(cap)]);
            divides(processors, &[Vm::spinning(8).cap(cap), Vm::spinning(64)]);
        }
    }
}

#[test]
fn the_vcpus_of_a_vm_have_the_same_time() {
    for vm in [Vm::spinning(3), Vm::spinning(10).cap(150), Vm::spinning(3).cap(30)] {
        let outcome = run(2, &[vm, Vm::spinning(1)], 8 * SECOND);
        let (least, most) = (outcome.vcpus[0].iter().min(), outcome.vcpus[0].iter().max());
        assert!(most.unwrap() - least.unwrap() <= 40 * MILLISECOND, "{:?}", outcome.vcpus[0]);
    }
}

#[test]
fn a_waking_vcpu_of_a_vm_below_its_share_runs_within_10_ms_of_64_that_spin() {
    for processors in [1, 2, 4] {
        for (runs, sleeps) in [(100, 900), (1000, 9000), (3000, 17_000), (10, 1000), (9000, 91_000)]
        {
            let mut sleeper = Vm::spinning(1);
            sleeper.vcpus = vec![Habit::Alternates(runs, sleeps)];
            let outcome = run(processors, &[sleeper, Vm::spinning(64)], 10 * SECOND);
            let mut wakes = outcome.wakes[0].clone();
            wakes.sort_unstable();
            let at = wakes.len() * 999 / 1000;
            assert!(wakes[at] <= 10 * MILLISECOND, "{} after {runs}, {sleeps}", wakes[at]);
        }
    }
}

#[test]
fn sleep_earns_a_credit_of_100_ms_at_most() {
    for processors in [1, 2, 4] {
        let mut late = Vm::spinning(64);
        late.vcpus.fill(Habit::Begins(5 * SECOND));
        let vms = [Vm::spinning(64), late];
        let outcome = run(processors, &vms, 10 * SECOND);
        let part = 5 * SECOND * processors as u64 / 2;
        let had = outcome.total(1);
        assert!(had <= part + 100 * MILLISECOND, "{had} of {part}");
        let furthest = furthest(&outcome, &parts(processors, &vms), 5 * SECOND);
        assert!(furthest <= 0.1, "{furthest}");
    }
}

#[test]
fn sleep_just_before_a_tick_gains_nothing() {
    for processors in [1, 2, 4] {
        let mut ducks = Vm::spinning(8);
        ducks.vcpus.fill(Habit::DucksTick(50, 50));
        let outcome = run(processors, &[ducks, Vm::spinning(8)], 10 * SECOND);
        let part = 10 * SECOND * processors as u64 / 2;
        assert!(outcome.total(0) <= part + 100 * MILLISECOND, "{}", outcome.total(0));
        // And within a VM.
        let mut ducks = Vm::spinning(8);
        ducks.vcpus[0] = Habit::DucksTick(50, 50);
        let outcome = run(processors, &[ducks], 10 * SECOND);
        let part = 10 * SECOND * processors as u64 / 8;
        assert!(outcome.vcpus[0][0] <= part + 100 * MILLISECOND, "{:?}", outcome.vcpus);
    }
}

#[test]
fn what_the_hypervisor_does_for_a_vm_is_of_its_share() {
    // Besides its vCPU, a thread of its devices that is as busy.
    let outcome = run(1, &[Vm::spinning(2), Vm::spinning(1)], 4 * SECOND);
    let had = outcome.vcpus[0][0];
    assert!(had.abs_diff(SECOND) <= 50 * MILLISECOND, "{had}");
}

#[test]
fn a_vm_pays_for_what_threads_of_the_hypervisor_do_for_it() {
    for (processors, alternates) in [(1, (500, 500)), (1, (4000, 4000)), (2, (2000, 1000))] {
        // Such as the reclaimer, which frees the tables of the first VM.
        let mut reclaimer = Vm::spinning(1);
        reclaimer.vcpus.fill(Habit::Alternates(alternates.0, alternates.1));
        reclaimer.serves = Some(0);
        let vms = [Vm::spinning(2), Vm::spinning(2), reclaimer];
        let outcome = run(processors, &vms, 8 * SECOND);
        let half = 4 * SECOND * processors as u64;
        let (its, reclaim, other) = (outcome.total(0), outcome.total(2), outcome.total(1));
        assert!(reclaim > SECOND, "{reclaim}");
        assert!(other.abs_diff(half) <= 100 * MILLISECOND, "{other} beside {its} and {reclaim}");
        assert_eq!((outcome.spent[0], outcome.spent[2]), (its + reclaim, 0));
    }
}

#[test]
fn a_cap_holds_for_what_the_hypervisor_does_for_a_vm() {
    let mut reclaimer = Vm::spinning(1);
    reclaimer.vcpus.fill(Habit::Alternates(100, 900));
    reclaimer.serves = Some(0);
    let outcome = run(2, &[Vm::spinning(2).cap(30), Vm::spinning(2), reclaimer], 8 * SECOND);
    let had = outcome.total(0) + outcome.total(2);
    assert!(had.abs_diff(8 * SECOND * 30 / 100) <= 100 * MILLISECOND, "{had}");
}

#[test]
fn a_share_counts_what_its_threads_have_had() {
    let mut sleeper = Vm::spinning(3);
    sleeper.vcpus.fill(Habit::Alternates(700, 300));
    let outcome = run(2, &[sleeper, Vm::spinning(2), Vm::spinning(1).cap(20)], 2 * SECOND);
    for vm in 0..3 {
        assert_eq!(outcome.spent[vm], outcome.total(vm), "VM {vm}");
    }
}

fn any_vm() -> impl Strategy<Value = Vm> {
    (1..=64_usize, 10..=1000_u32).prop_map(|(vcpus, weight)| Vm { weight, ..Vm::spinning(vcpus) })
}

fn any_cap() -> impl Strategy<Value = u32> {
    5..400_u32
}

fn any_processors() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1), Just(2), Just(4)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_vms_have_what_the_naive_model_gives_them(
        mut vms in proptest::collection::vec(any_vm(), 1..6),
        cap in proptest::option::of(any_cap()),
        processors in any_processors(),
    ) {
        vms[0].cap = cap;
        let outcome = run(processors, &vms, 3 * SECOND);
        let parts = parts(processors, &vms);
        // In points of the machine: weights that are far from each other divide by few slices.
        let furthest = furthest(&outcome, &parts, 0) / processors as f64;
        prop_assert!(furthest <= POINTS, "{furthest} from {parts:?}");
    }

    #[test]
    fn two_vms_of_any_size_divide_by_one_to_one_or_three_in_points_of_one_processor(
        counts in (1..=64_usize, 1..=64_usize),
        is_heavy in any::<bool>(),
        cap in proptest::option::of(any_cap()),
        processors in any_processors(),
    ) {
        let weight = if is_heavy { 300 } else { Share::WEIGHT };
        let light = Vm { cap, ..Vm::spinning(counts.0) };
        divides(processors, &[light, Vm::spinning(counts.1).weight(weight)]);
    }

    #[test]
    fn no_vm_exceeds_its_cap(
        mut vms in proptest::collection::vec(any_vm(), 1..6),
        caps in proptest::collection::vec(any_cap(), 6),
        processors in any_processors(),
    ) {
        for (vm, &cap) in vms.iter_mut().zip(&caps) {
            vm.cap = Some(cap);
        }
        let outcome = run(processors, &vms, 2 * SECOND);
        for (vm, &cap) in vms.iter().zip(&caps).enumerate().map(|(number, (_, cap))| (number, cap)) {
            for window in outcome.windows(vm, 0) {
                let most = f64::from(cap) / 100.0 * (1.0 + POINTS) + POINTS;
                prop_assert!(window <= most, "{window} of {cap} %");
            }
        }
    }
}
