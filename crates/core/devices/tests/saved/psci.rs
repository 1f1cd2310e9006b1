//! PSCI: which cores are on.

use mayfly_devices::psci::{Core, Outcome, Psci, Refusal, STATE};
use mayfly_state::Error;
use proptest::prelude::*;

use crate::state::{any_forgery, config, forged, loaded, saved};

type System = Psci<[Core; 3]>;

fn cores() -> [Core; 3] {
    [Core::on(0), Core::off(1), Core::off(0x100)]
}

fn save(psci: &System) -> Vec<u8> {
    saved(STATE, |to| psci.save(to))
}

fn load(bytes: &[u8]) -> Result<System, Error> {
    loaded(bytes, STATE, |from| Psci::load(cores(), from))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    TurnOn(u64),
    Ask(u64, u64),
    Started(usize),
    Refused(usize),
    Stopped(usize),
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let mpidr = || prop::sample::select(vec![0_u64, 1, 2, 0x100]);
    let step = prop_oneof![
        mpidr().prop_map(Step::TurnOn),
        (mpidr(), 0..3_u64).prop_map(|(mpidr, level)| Step::Ask(mpidr, level)),
        (0..3_usize).prop_map(Step::Started),
        (0..3_usize).prop_map(Step::Refused),
        (0..3_usize).prop_map(Step::Stopped),
    ];
    prop::collection::vec(step, 0..20)
}

/// A system, and its cores that were turned on and do not run yet: the embedder starts them, or cannot.
struct Run {
    psci: System,
    pending: [bool; 3],
}

impl Run {
    fn step(&mut self, step: Step) -> (Outcome, [bool; 3]) {
        let mut outcome = Outcome::Return(0);
        match step {
            Step::TurnOn(mpidr) => {
                outcome = self.psci.call(0, &[0xc400_0003, mpidr, 0x4020_0000, 7]);
                if let Outcome::Start { target, .. } = outcome {
                    self.pending[target] = true;
                }
            }
            Step::Ask(mpidr, level) => outcome = self.psci.call(0, &[0xc400_0004, mpidr, level, 0]),
            Step::Started(target) if self.pending[target] => {
                self.pending[target] = false;
                self.psci.started(target);
            }
            Step::Refused(target) if self.pending[target] => {
                self.pending[target] = false;
                outcome = Outcome::Return(self.psci.refused(target, Refusal::Resources));
            }
            Step::Stopped(caller) if self.psci.is_on(caller) => self.psci.stopped(caller),
            Step::Started(_) | Step::Refused(_) | Step::Stopped(_) => {}
        }
        (outcome, [0, 1, 2].map(|core| self.psci.is_on(core)))
    }
}

fn after(steps: &[Step]) -> Run {
    let mut run = Run { psci: Psci::new(cores()), pending: [false; 3] };
    for each in steps {
        run.step(*each);
    }
    run
}

#[test]
fn a_system_of_other_cores_is_refused() {
    let bytes = save(&after(&[]).psci);
    let two = loaded(&bytes, STATE, |from| Psci::load([Core::on(0), Core::off(1)], from));
    assert_eq!(two.unwrap_err().to_string(), "section `psci` 0 has 0x3 as cores");
    let moved = [Core::on(0), Core::off(2), Core::off(0x100)];
    let error = loaded(&bytes, STATE, |from| Psci::load(moved, from)).unwrap_err();
    assert_eq!(error.to_string(), "section `psci` 0 has 0x1 as affinity of 1");
}

#[test]
fn a_power_state_that_no_core_has_is_refused() {
    let bytes = saved(STATE, |to| {
        to.u32(3);
        for (mpidr, state) in [(0, 0), (1, 3), (0x100, 1)] {
            to.u64(mpidr);
            to.u8(state);
        }
    });
    let error = load(&bytes).unwrap_err().to_string();
    assert_eq!(error, "section `psci` 0 has 0x3 as power state of 1");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_system_goes_on_as_the_one_that_was_saved(before in any_steps(), then in any_steps()) {
        let mut run = after(&before);
        let bytes = save(&run.psci);
        let copy = Psci::new(load(&bytes).unwrap().cores().clone());
        let mut other = Run { psci: copy, pending: run.pending };
        prop_assert_eq!(save(&other.psci), bytes);
        for each in &then {
            prop_assert_eq!(run.step(*each), other.step(*each), "{:?}", each);
        }
    }

    #[test]
    fn a_forged_system_is_refused_or_works(
        before in any_steps(),
        forgery in any_forgery(),
        then in any_steps(),
    ) {
        let bytes = forged(&save(&after(&before).psci), STATE, &forgery);
        if let Ok(psci) = load(&bytes) {
            prop_assert_eq!(save(&psci), bytes);
            let mut run = Run { psci, pending: [false; 3] };
            for each in &then {
                run.step(*each);
            }
        }
    }
}
