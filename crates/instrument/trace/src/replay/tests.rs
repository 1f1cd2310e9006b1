use super::script::tests::{call, slot, trace};
use super::*;
use crate::gain::{Benefit, Change};
use crate::record::{Call, Stall};

const MS: u64 = 1_000_000;

/// Devices first, and what of it waits: a memslot for their grace period, and the irqchip for what it is made of.
fn devices_first() -> Trace {
    let calls = vec![
        call("KVM_CREATE_VM", 0, &[("vm", 0)]),
        call("KVM_CREATE_IRQCHIP", 10, &[]),
        slot(20, 0, 0, 1 << 30),
        call("KVM_CREATE_VCPU", 30, &[("id", 0)]),
        call("KVM_RUN", 40, &[]),
    ];
    let stall = |call: &Call, code: &str| {
        let cause = Some(Cause { code: code.to_owned(), ..Cause::default() });
        Stall { what: call.name.clone(), nth: Some(0), took: 9 * MS, cause, ..Stall::default() }
    };
    let stalls = vec![
        stall(&calls[2], "grace-period"),
        stall(&calls[1], "irqchip-creation"),
        stall(&calls[0], "huge-page-worker"),
    ];
    Trace { stalls, ..trace(calls) }
}

/// A life in which start, what came while vCPUs ran, and close took so many milliseconds, and the call that is the third
/// so many microseconds.
fn pass([start, meanwhile, close]: [u64; 3], third: u64) -> Pass {
    let each = vec![(1, 7), (2, third * 1_000), (3, 9)];
    Pass { start: start * MS, meanwhile: meanwhile * MS, close: close * MS, each }
}

/// The gains of a trace's waits, where each round goes as it is said, and how many ways were to be played.
fn gains(trace: &mut Trace, round: impl Fn(u64) -> Round) -> (Vec<Gain>, usize) {
    let mut played = 0;
    measure_by(trace, &mut |_, ways| {
        played = ways.len();
        Ok((0..15).map(&round).collect())
    });
    let causes = trace.stalls.iter().filter_map(|stall| stall.cause.as_ref());
    (causes.map(|cause| cause.gain.clone().unwrap()).collect(), played)
}

fn measured(gain: &Gain) -> &Measured {
    let Gain::Measured(measured) = gain else { panic!("{gain}") };
    measured
}

#[test]
fn each_remedy_is_held_against_the_recorded_way_by_its_own_rounds() {
    let mut trace = devices_first();
    let (found, ways) = gains(&mut trace, |round| {
        vec![pass([20, 1, 4], 5_000 + 100 * round), pass([11, 1, 6], 0), pass([17, 1, 4], 0)]
    });
    assert_eq!(ways, 2);
    let both =
        |change: Change| (change.recorded / MS, change.better / MS, change.saved / MS as i64);
    let [memory_first, split] = [&found[0], &found[1]].map(measured);
    let all = |one: &Measured| [both(one.start), both(one.close), both(one.whole)];
    assert_eq!(all(memory_first), [(20, 11, 9), (4, 6, -2), (25, 18, 7)]);
    assert_eq!(all(split), [(20, 17, 3), (4, 4, 0), (25, 22, 3)]);
    assert_eq!((memory_first.benefit, memory_first.rounds), (Benefit::Gain, 15));
    assert_ne!(memory_first.otherwise, split.otherwise);
    // The middle one of what the waiting call took as recorded.
    assert_eq!(memory_first.wait, Some(5_700_000));
    let Gain::NotMeasured(why) = &found[2] else { panic!("{}", found[2]) };
    assert!(why.contains("setting of the host,"), "{why}");
    assert_eq!(trace.replay.unwrap().calls, 5);
}

#[test]
fn where_the_call_waits_for_nothing_in_the_replay_no_gain_is_of_that_wait() {
    let round =
        |third| move |_| vec![pass([20, 0, 4], third), pass([11, 0, 4], 0), pass([20, 0, 4], 0)];
    // A quarter of a tick of 4 ms.
    let (found, _) = gains(&mut devices_first(), round(999));
    let Gain::NotMeasured(why) = &found[0] else { panic!("{}", found[0]) };
    assert_eq!(why, "in the replay the call took 999 us, and waited for nothing");
    let (found, _) = gains(&mut devices_first(), round(1_000));
    assert_eq!(measured(&found[0]).wait, Some(MS));
}

#[test]
fn a_replay_that_fails_says_why_for_each_wait_that_it_was_for() {
    let mut trace = devices_first();
    measure_by(&mut trace, &mut |_, _| Err("there is no room".to_owned()));
    let said = |stall: &Stall| stall.cause.as_ref().unwrap().gain.as_ref().unwrap().to_string();
    let said: Vec<String> = trace.stalls.iter().map(said).collect();
    let expected = "no gain is claimed: there is no room";
    assert_eq!((said[0].as_str(), said[1].as_str()), (expected, expected));
    assert!(said[2].contains("setting of the host,"), "{said:?}");
    assert_eq!(trace.replay, None, "nothing was replayed");
}
