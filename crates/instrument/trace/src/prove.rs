//! The proof of a cause that passes with time: if the call is delayed, it waits that much less.
//!
//! What a call waits for may have begun before it, as a grace period has. Then a call that begins a tick later waits
//! a tick less, and a call that begins late enough does not wait. The call's own work takes as long whenever the call
//! begins.

use mayfly_record::units::duration;

use crate::causes::own;
use crate::record::{Cause, Stall, Trace, Verdict};
use crate::recorder::{Delay, Error, Launch, Output, record};

/// By how many ticks a call is held back, in turn.
const TICKS: [u64; 4] = [0, 1, 2, 4];
/// Runs of the program with each.
const RUNS: usize = 3;
/// Waits that are tried, the longest first.
const MOST: usize = 3;
/// What is called a wait that passes with time.
const PASSES: &str = "grace-period";

/// How many runs of the program it takes to prove what can be proved of a trace.
pub fn runs_to_prove(trace: &Trace) -> usize {
    suspects(trace).len() * TICKS.len() * RUNS
}

/// Runs the program again and again, without input or output, and proves the causes that can be: those that pass with
/// time. What is not proved stays likely, and its evidence says what was tried. Once this process is asked to end, it
/// runs the program no more, and a note says so; gives whether that was not so.
///
/// # Errors
/// As [`record`] has them.
pub fn prove(launch: &Launch, trace: &mut Trace) -> Result<bool, Error> {
    let tick = trace.tick().unwrap_or(4_000_000);
    for stall in suspects(trace) {
        let (name, nth) = (trace.stalls[stall].what.clone(), trace.stalls[stall].nth.unwrap_or(0));
        let mut tried = Vec::new();
        for ticks in TICKS {
            let delay = Delay { name: name.clone(), nth, time: ticks * tick };
            let again = Launch {
                command: launch.command.clone(),
                output: Output::Null,
                delay: Some(delay),
                ..Launch::default()
            };
            let mut waits = Vec::new();
            for _ in 0..RUNS {
                let run = record(&again, &mut |_| {})?;
                if run.was_interrupted {
                    trace.notes.push(
                        "interrupted: not every likely cause was put to the proof".to_owned(),
                    );
                    return Ok(false);
                }
                let mut calls = run.trace.calls.iter().filter(|call| call.name == name);
                waits.extend(calls.nth(nth).map(own));
            }
            waits.sort_unstable();
            tried.extend(waits.get(waits.len() / 2).map(|median| (ticks * tick, *median)));
        }
        let Trace { stalls, notes, .. } = trace;
        notes.extend(judge(&mut stalls[stall], &tried, tick));
    }
    Ok(true)
}

fn suspects(trace: &Trace) -> Vec<usize> {
    let passes = |cause: &Cause| cause.code == PASSES;
    let stalls = trace.stalls.iter().enumerate();
    let suspects =
        stalls.filter(|(_, stall)| stall.nth.is_some() && stall.cause.as_ref().is_some_and(passes));
    suspects.map(|(number, _)| number).take(MOST).collect()
}

/// Says what was tried, and whether it is proof. A cause that it refutes is taken away; then gives a note that says so.
fn judge(stall: &mut Stall, tried: &[(u64, u64)], tick: u64) -> Option<String> {
    let cause = stall.cause.as_mut()?;
    let told: Vec<String> = tried
        .iter()
        .map(|(delay, wait)| match delay {
            0 => format!("{} without a delay", duration(*wait)),
            delay => format!("{} after a delay of {}", duration(*wait), duration(*delay)),
        })
        .collect();
    let told = format!("the call took {} (medians of {RUNS} runs)", told.join(", "));
    if shrinks(tried, tick) {
        cause.verdict = Verdict::Proved;
    } else if is_refuted(tried, tick) {
        let (code, what) = (cause.code.clone(), stall.what.clone());
        stall.cause = None;
        let at = duration(stall.at);
        return Some(format!("{what} at {at} was taken for a {code} and is none, since {told}"));
    }
    cause.evidence.push(told);
    None
}

/// Whether the figures speak against a wait that passes with time: there is none without a delay, or it is not
/// shorter by half after the longest delay.
fn is_refuted(tried: &[(u64, u64)], tick: u64) -> bool {
    let (Some((0, whole)), Some((_, last))) = (tried.first(), tried.last()) else { return false };
    tried.len() == TICKS.len() && (*whole < tick / 2 || *last > whole / 2)
}

/// Whether each wait is as much shorter as the call was held back, as far as half a tick, and the last is nearly none.
fn shrinks(tried: &[(u64, u64)], tick: u64) -> bool {
    let (Some((0, whole)), Some((_, last))) = (tried.first(), tried.last()) else { return false };
    let as_expected =
        |(delay, wait): &(u64, u64)| wait.abs_diff(whole.saturating_sub(*delay)) <= tick / 2;
    tried.len() == TICKS.len()
        && *whole >= tick / 2
        && *last <= whole / 4
        && tried.iter().all(as_expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 4_000_000;

    fn tried(waits: [u64; 4]) -> Vec<(u64, u64)> {
        TICKS.iter().map(|ticks| ticks * TICK).zip(waits).collect()
    }

    #[test]
    fn a_wait_that_shrinks_by_what_it_was_held_back_is_proved_and_no_other() {
        assert!(shrinks(&tried([6_100_000, 1_800_000, 100_000, 90_000]), TICK));
        // It takes as long whenever it begins; or shrinks to something; or was none.
        assert!(!shrinks(&tried([6_100_000, 6_000_000, 6_200_000, 6_100_000]), TICK));
        assert!(!shrinks(&tried([9_000_000, 5_000_000, 3_000_000, 3_000_000]), TICK));
        assert!(!shrinks(&tried([6_100_000, 6_000_000, 100_000, 90_000]), TICK));
        assert!(!shrinks(&tried([1_000_000, 100_000, 100_000, 100_000]), TICK));
        // The program did not make the call each time.
        assert!(!shrinks(&tried([6_100_000, 1_800_000, 100_000, 90_000])[..3], TICK));
        assert!(!shrinks(&[], TICK));
    }

    #[test]
    fn what_was_tried_is_said_and_a_cause_that_it_refutes_goes() {
        let judged = |waits| {
            let cause = Some(Cause { code: PASSES.to_owned(), ..Cause::default() });
            let mut stall = Stall { what: "KVM_IRQFD".to_owned(), cause, ..Stall::default() };
            (judge(&mut stall, &tried(waits), TICK), stall.cause)
        };
        let (note, cause) = judged([6_100_000, 2_100_000, 0, 0]);
        let cause = cause.unwrap();
        assert_eq!((note, cause.verdict), (None, Verdict::Proved));
        assert!(cause.evidence[0].starts_with(
            "the call took 6.10 ms without a delay, 2.10 ms after a delay of 4.00 ms,"
        ));
        // It does not come back, or is as long whenever the call begins.
        for waits in [[36_900, 86_000, 161_000, 0], [6_100_000, 6_000_000, 6_200_000, 6_100_000]] {
            let (note, cause) = judged(waits);
            assert_eq!(cause, None);
            let note = note.unwrap();
            assert!(note.contains("was taken for a grace-period and is none"), "{note}");
        }
        // It is shorter, and not by what was expected: that is neither.
        let (note, cause) = judged([9_000_000, 5_000_000, 3_000_000, 3_000_000]);
        assert_eq!((note, cause.unwrap().verdict), (None, Verdict::Likely));
    }
}
