//! Faults that are planted in what hardware sees of a VM's life, and that the checker has to find: where, and which rule
//! is broken. What is recorded is a life that breaks none; each fault is one edit of it, such as a mistake of the core's,
//! or of an embedder's, would make. And what breaks no rule breaks none where it is not known in which order events came.

mod drawn;
mod faults;
mod life;
mod owners;
mod wide;
#[path = "../../../../core/hwtrace/tests/common/wider.rs"]
mod wider;

use mayfly_hwtrace::{Checker, Record, Rule};
use mayfly_stage2::{Arm, Ept};

use faults::{FAULTS, Fault};
use life::{Edit, Life, OPTIONS, life};

/// All faults.
fn faults() -> impl Iterator<Item = Fault> {
    FAULTS.into_iter().chain(owners::FAULTS)
}

/// The rules that a life breaks, and at which of its events.
fn broken(life: &Life) -> Vec<(usize, Rule)> {
    let mut checker = Checker::new(OPTIONS);
    for (at, (cpu, event)) in (0u64..).zip(life) {
        let record = Record { begin: 2 * at, end: 2 * at + 1, cpu: *cpu, event: event.clone() };
        checker.take(at, &record);
    }
    checker.finish().iter().map(|broken| (broken.line as usize, broken.rule)).collect()
}

#[test]
fn a_life_breaks_no_rule() {
    let (arm, ept) = (life::<Arm<40>>(), life::<Ept>());
    assert!(arm.len() > 100 && ept.len() > 100);
    assert_eq!((broken(&arm), broken(&ept)), (vec![], vec![]));
}

#[test]
fn every_fault_that_is_planted_is_found_by_its_rule() {
    let recorded = Edit(life::<Arm<40>>());
    let mut found: Vec<Rule> = Vec::new();
    for (name, plant, rule) in faults() {
        let mut life = recorded.clone();
        plant(&mut life).expect(name);
        let broken = broken(&life.0);
        let rules: Vec<Rule> = broken.iter().map(|(_, rule)| *rule).collect();
        assert!(rules.contains(&rule), "{name}: {broken:?}");
        found.push(rule);
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), Rule::ALL.len(), "every rule is broken by some fault");
}
