//! Measuring pairs of calls, many VMs at a time.

use std::thread;
use std::time::{Duration, Instant};

use super::pair::Pair;
use super::stage::{Role, Stage};
use crate::{Call, Error, GuestMemory, Kvm};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Samples of each pair, unless time runs out.
    pub fewest: usize,
    /// Samples of a pair that cannot be told.
    pub most: usize,
    /// When no more is begun.
    pub until: Instant,
}

/// Pairs whose VMs exist at the same time: few enough for the fds that a process may have open.
const AT_A_TIME: usize = 12;

/// Ticks after which nothing is left of what a call has armed: a grace period takes two.
const SETTLED: u32 = 4;

/// Measures each pair of `pairs`, where a tick lasts so long.
///
/// Changes nothing but VMs of its own, which are gone when it returns. A pair of which a call fails has the error; one for
/// which no time was left has few samples, or none.
pub fn measure(kvm: &Kvm, tick: Duration, pairs: &[(Call, Call)], effort: Effort) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = pairs.iter().map(|&(after, call)| Pair::new(after, call)).collect();
    let memory = match GuestMemory::map(4096) {
        Ok(memory) => memory,
        Err(error) => {
            for pair in &mut pairs {
                pair.error = Some(error.clone());
            }
            return pairs;
        }
    };
    let mut phase = Phase::new(tick);
    for round in 0..effort.most {
        let open = |pair: &&mut Pair| {
            let is_known = round >= effort.fewest && pair.is_settled(tick);
            pair.error.is_none() && !is_known
        };
        let mut round: Vec<&mut Pair> = pairs.iter_mut().filter(open).collect();
        if round.is_empty() {
            break;
        }
        phase.shuffle(&mut round);
        for some in round.chunks_mut(AT_A_TIME) {
            if Instant::now() >= effort.until {
                return pairs;
            }
            sample(kvm, &memory, tick, some, &mut phase);
        }
    }
    pairs
}

/// One sample of each pair.
fn sample(
    kvm: &Kvm,
    memory: &GuestMemory,
    tick: Duration,
    pairs: &mut [&mut Pair],
    phase: &mut Phase,
) {
    let mut stages: Vec<_> = pairs
        .iter_mut()
        .map(|pair| {
            let set = || {
                let set = || Stage::set(kvm, memory, pair.after, pair.call);
                let [at_once, mut later] = [set()?, set()?];
                later.make(pair.after, Role::First)?;
                Ok([at_once, later])
            };
            noted(set(), &mut pair.error)
        })
        .collect();
    thread::sleep(tick * SETTLED);
    for (pair, stages) in pairs.iter_mut().zip(&mut stages) {
        let Some([at_once, later]) = stages else { continue };
        phase.pause();
        let first = at_once.make(pair.after, Role::First);
        let second = first.and_then(|_| at_once.make(pair.call, Role::Second));
        pair.at_once.extend(noted(second, &mut pair.error));
        pair.later.extend(noted(later.make(pair.call, Role::Second), &mut pair.error));
    }
    // The end of a VM waits as well; those of many wait at the same time. What no thread can be had for, this one ends.
    thread::scope(|scope| {
        for stage in stages.into_iter().flatten().flatten() {
            let _ = thread::Builder::new().spawn_scoped(scope, move || drop(stage));
        }
    });
}

fn noted<T>(result: Result<T, Error>, error: &mut Option<Error>) -> Option<T> {
    result.map_err(|why| *error = Some(why)).ok()
}

/// Random moments within a tick.
struct Phase {
    tick: Duration,
    state: u64,
}

impl Phase {
    fn new(tick: Duration) -> Self {
        // Any seed will do: where in a tick a process happens to look at its clock is chance already.
        let seed = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec;
        Self { tick, state: seed.cast_unsigned() }
    }

    /// Sleeps for less than a tick, any time as likely as any other.
    fn pause(&mut self) {
        let tick = u64::try_from(self.tick.as_nanos()).unwrap_or(u64::MAX).max(1);
        thread::sleep(Duration::from_nanos(self.next() % tick));
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
    }

    /// `SplitMix64` (Steele, Lea and Flood, 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
