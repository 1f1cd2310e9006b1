//! Measures the gain of remedies: replays the recorded calls in VMs of its own, in the recorded order and in the
//! better order.
//!
//! The replay needs only the trace of the program, and touches no other process and no other VM. Each round plays
//! every order once, in turns, and begins at a random moment of a tick, so that all orders meet the same host. The
//! time between two calls of the program passes in the replay too, up to four ticks each, because grace periods pass
//! with time; only the time in calls counts.

mod memory;
mod remedy;
mod script;
mod stage;
#[cfg(test)]
mod tests;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_kvm::Kvm;
use mayfly_record::Limits;
use mayfly_record::units::duration;

use crate::gain::{Gain, Measured, Replay};
use crate::record::{Cause, Trace};
use crate::sys::signals::Asked;
use memory::Memory;
use remedy::Remedy;
use script::{Script, Step};
use stage::{Pass, play};

/// Rounds, if there is time for them, and the fewest that say something.
const ROUNDS: usize = 21;
const FEWEST: usize = 6;
/// What is shorter than this part of a tick has waited for no grace period.
const SHORT: u64 = 4;
/// How long rounds are begun.
const TIME: Duration = Duration::from_secs(20);
/// How long the replay may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often the replay checks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Measures what the remedy of each cause gains, where that is a matter of which calls are made and when, and says why of
/// the others. `told` is told before it begins how many ways there are. Once this process is asked to end, it is over,
/// and that is why.
pub fn measure_gains(trace: &mut Trace, told: &mut dyn FnMut(usize)) {
    measure_by(trace, &mut |script, ways| {
        let asked = Asked::listen();
        told(ways.len());
        watched(script, ways, &asked)
    });
}

/// Plays a script as it is, and in each other way; a round has a pass of each, in this order.
type Play<'a> = dyn FnMut(Script, Vec<Vec<Step>>) -> Result<Vec<Round>, String> + 'a;

fn measure_by(trace: &mut Trace, play: &mut Play<'_>) {
    if !trace.stalls.iter().any(|stall| stall.cause.is_some()) {
        return;
    }
    let script = match Script::of(trace) {
        Ok(script) => script,
        Err(why) => return give_all(trace, &Gain::NotMeasured(why)),
    };
    let remedies: Vec<Result<Remedy, String>> =
        trace.stalls.iter().map(|stall| Remedy::of(trace, &script, stall)).collect();
    let mut ways: Vec<(Remedy, Vec<Step>)> = Vec::new();
    for remedy in remedies.iter().flatten() {
        if ways.iter().all(|(known, _)| known != remedy)
            && let Ok(steps) = remedy.applied(&script.steps)
        {
            ways.push((*remedy, steps));
        }
    }
    let rounds = if ways.is_empty() {
        Ok(Vec::new())
    } else {
        play(script.clone(), ways.iter().map(|(_, steps)| steps.clone()).collect())
    };
    if rounds.as_ref().is_ok_and(|rounds| !rounds.is_empty()) {
        let calls = script.steps.len() as u64;
        let (left_out, stands_in) = (script.left_out.clone(), script.stands_in.clone());
        trace.replay = Some(Replay { calls, left_out, stands_in });
    }
    let waited: Vec<Option<usize>> = trace
        .stalls
        .iter()
        .map(|stall| remedy::step_of(trace, &script, stall).map(|step| step.call))
        .collect();
    let short = trace.tick().unwrap_or(4_000_000) / SHORT;
    for ((stall, remedy), waited) in trace.stalls.iter_mut().zip(remedies).zip(waited) {
        let Some(cause) = &mut stall.cause else { continue };
        let gain = remedy.and_then(|remedy| {
            remedy.applied(&script.steps)?;
            let rounds = rounds.as_ref().map_err(Clone::clone)?;
            let way = ways.iter().position(|(known, _)| *known == remedy).unwrap_or(0);
            let found = measured(remedy, rounds, way + 1, waited);
            match (remedy, found.wait) {
                // Whatever differs there, it is not that wait.
                (Remedy::MemoryFirst(_), Some(wait)) if wait < short => Err(format!(
                    "in the replay the call took {}, and waited for nothing",
                    duration(wait)
                )),
                _ => Ok(found),
            }
        });
        cause.gain = Some(gain.map_or_else(Gain::NotMeasured, Gain::Measured));
    }
}

fn give_all(trace: &mut Trace, gain: &Gain) {
    let causes = trace.stalls.iter_mut().filter_map(|stall| stall.cause.as_mut());
    causes.for_each(|cause: &mut Cause| cause.gain = Some(gain.clone()));
}

/// Lives of one round: as recorded, and each other way.
type Round = Vec<Pass>;

fn measured(remedy: Remedy, rounds: &[Round], way: usize, waited: Option<usize>) -> Measured {
    let pairs = |of: fn(&Pass) -> u64| -> Vec<(u64, u64)> {
        rounds.iter().filter_map(|round| Some((of(round.first()?), of(round.get(way)?)))).collect()
    };
    let wait = waited.and_then(|call| {
        let recorded = rounds.iter().filter_map(|round| round.first());
        let each = recorded.filter_map(|pass| pass.each.iter().find(|(one, _)| *one == call));
        let mut times: Vec<u64> = each.map(|(_, took)| *took).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    });
    let all = [pairs(|pass| pass.start), pairs(|pass| pass.close), pairs(Pass::whole)];
    Measured::of(remedy.words().to_owned(), wait, [&all[0], &all[1], &all[2]])
}

/// All rounds on a thread of their own: a call that never returns costs their answer, and no more.
fn watched(script: Script, ways: Vec<Vec<Step>>, asked: &Asked) -> Result<Vec<Round>, String> {
    let (answer, answered) = channel();
    let all = move || {
        let _ = answer.send(rounds(&script, &ways));
    };
    let begun = thread::Builder::new().name("replay".to_owned()).spawn(all);
    begun.map_err(|why| format!("no thread could be started for the replay: {why}"))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match answered.recv_timeout(LOOK) {
            Ok(rounds) => return rounds,
            Err(RecvTimeoutError::Disconnected) => {
                return Err("the replay ended without a result".to_owned());
            }
            Err(RecvTimeoutError::Timeout) if asked.has_come() => {
                return Err("the replay was interrupted".to_owned());
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= until => {
                return Err(format!("the replay did not end within {} s", PATIENCE.as_secs()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn rounds(script: &Script, ways: &[Vec<Step>]) -> Result<Vec<Round>, String> {
    let kvm = Kvm::open().map_err(|why| why.to_string())?;
    let memory = Memory::of(script, Limits::gather())?;
    let tick = mayfly_kvm::hz().map_or(Duration::from_millis(4), |hz| Duration::from_secs(1) / hz);
    let lives: Vec<&[Step]> =
        [&script.steps[..]].into_iter().chain(ways.iter().map(|way| &way[..])).collect();
    let until = Instant::now() + TIME;
    let mut all = Vec::new();
    while all.len() < ROUNDS && (all.len() < FEWEST || Instant::now() < until) {
        let mut round = vec![Pass::default(); lives.len()];
        for turn in 0..lives.len() {
            // Another one begins each round.
            let life = (turn + all.len()) % lives.len();
            // What the life before has left to do is done by then; and it is any moment of a tick.
            thread::sleep(tick * 2 + part_of(tick, all.len() * lives.len() + turn));
            round[life] = play(&kvm, &memory, lives[life], script.before_close)?;
        }
        all.push(round);
    }
    Ok(all)
}

/// Moments that are spread over a tick, however many there are: multiples of the golden section.
fn part_of(tick: Duration, nth: usize) -> Duration {
    tick.mul_f64((nth as f64 * 0.618_033_988_749_895).fract())
}
