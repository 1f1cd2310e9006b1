//! Contenders timed in turns.
//!
//! The speed of a shared machine changes, and the contender that is measured first may get the better minute. So contenders
//! take turns, a short batch each, some hundred times: the batches that are compared were measured within the same
//! millisecond. Medians leave out the batches in which another process had the processor.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a batch takes, roughly.
const BATCH: Duration = Duration::from_micros(200);
/// How many turns each contender has, unless it is asked for fewer.
pub const TURNS: usize = 500;

/// Rounds that the turns are divided into, and how many of them lie outside of the interval at either end.
const ROUNDS: usize = 20;
const OUTSIDE: usize = 5;

/// Something that can be done many times over.
pub struct Contender<'a> {
    name: &'static str,
    /// Things done by a batch of one time, where all batches are such.
    whole: Option<u32>,
    prepare: Box<dyn FnMut() + 'a>,
    batch: Box<dyn FnMut(u32) + 'a>,
}

impl<'a> Contender<'a> {
    /// `batch(n)` does it `n` times.
    pub fn new(name: &'static str, batch: impl FnMut(u32) + 'a) -> Self {
        Self { name, whole: None, prepare: Box::new(|| ()), batch: Box::new(batch) }
    }

    /// Before each batch, not timed, `prepare` runs.
    #[must_use]
    pub fn after(mut self, prepare: impl FnMut() + 'a) -> Self {
        self.prepare = Box::new(prepare);
        self
    }

    /// Something that is done to `state` as a whole: by `act`, each time to one that `prepare` has made fit for it, not
    /// timed. That is `things` things, and figures are of one of them.
    pub fn whole<S: 'a>(
        name: &'static str,
        things: u32,
        state: S,
        mut prepare: impl FnMut(&mut S) + 'a,
        mut act: impl FnMut(&mut S) + 'a,
    ) -> Self {
        let state = Rc::new(RefCell::new(state));
        let same = Rc::clone(&state);
        let this = Self::new(name, move |_| act(&mut same.borrow_mut()));
        Self { whole: Some(things), ..this.after(move || prepare(&mut state.borrow_mut())) }
    }

    fn time(&mut self, count: u32) -> Duration {
        (self.prepare)();
        let started = Instant::now();
        (self.batch)(count);
        started.elapsed()
    }

    /// How many times make a batch: about as many as take [`BATCH`].
    fn calibrate(&mut self) -> u32 {
        if self.whole.is_some() {
            return 1;
        }
        let mut count = 1;
        loop {
            // The faster of two, since a batch that was interrupted looks like a long one.
            let took = self.time(count).min(self.time(count));
            if took >= BATCH / 2 {
                let batch = u128::from(count) * BATCH.as_nanos() / took.as_nanos();
                return (batch as u32).max(1);
            }
            count *= 2;
        }
    }
}

/// What a contender took, in each of its turns.
#[derive(Clone, Debug)]
pub struct Times {
    /// The contender's name.
    pub name: &'static str,
    /// Nanoseconds each time, turn by turn.
    nanos: Vec<f64>,
}

impl Times {
    /// Nanoseconds each time, in the median turn.
    pub fn median(&self) -> f64 {
        median(self.nanos.clone())
    }

    /// How many times as long as `peer` this took, in the median turn.
    pub fn ratio_to(&self, peer: &Times) -> f64 {
        median(self.ratios_to(peer).collect())
    }

    /// Between which values that ratio is in the median round of [`ROUNDS`], with a probability of 96 %. A round is as many
    /// turns that follow each other, and its ratio the median of theirs; the ends are the sixth and the fifteenth of the
    /// sorted rounds (Hettmansperger, "Statistical Inference Based on Ranks", 1984, chapter 1: the sign test's interval).
    pub fn interval_of_ratio_to(&self, peer: &Times) -> [f64; 2] {
        let ratios: Vec<_> = self.ratios_to(peer).collect();
        let turn = |round: usize| round * ratios.len() / ROUNDS;
        let round = |round| median(ratios[turn(round)..turn(round + 1)].to_vec());
        let mut rounds: Vec<_> = (0..ROUNDS).map(round).collect();
        rounds.sort_by(f64::total_cmp);
        [rounds[OUTSIDE], rounds[ROUNDS - 1 - OUTSIDE]]
    }

    /// The quartiles of that ratio: half of the turns are between them.
    pub fn quartiles_of_ratio_to(&self, peer: &Times) -> [f64; 2] {
        let mut ratios: Vec<_> = self.ratios_to(peer).collect();
        ratios.sort_by(f64::total_cmp);
        [ratios[ratios.len() / 4], ratios[ratios.len() * 3 / 4]]
    }

    fn ratios_to(&self, peer: &Times) -> impl Iterator<Item = f64> {
        self.nanos.iter().zip(&peer.nanos).map(|(ours, theirs)| ours / theirs)
    }
}

/// Times `contenders` in [`TURNS`] turns, the order reversed from turn to turn.
pub fn race<const N: usize>(contenders: [Contender<'_>; N]) -> [Times; N] {
    race_in(TURNS, contenders)
}

/// As [`race`], in so many turns: for those whose batches are long.
pub fn race_in<const N: usize>(turns: usize, mut contenders: [Contender<'_>; N]) -> [Times; N] {
    let counts = contenders.each_mut().map(Contender::calibrate);
    let mut times = contenders
        .each_ref()
        .map(|contender| Times { name: contender.name, nanos: Vec::with_capacity(turns) });
    for turn in 0..turns {
        for place in 0..N {
            let at = if turn % 2 == 0 { place } else { N - 1 - place };
            let took = contenders[at].time(counts[at]).as_nanos() as f64;
            times[at].nanos.push(took / f64::from(contenders[at].whole.unwrap_or(counts[at])));
        }
    }
    times
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { values[middle - 1].midpoint(values[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_or_between_the_two_middle_ones() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]).to_bits(), 3.0_f64.to_bits());
    }

    #[test]
    fn a_ratio_is_taken_turn_by_turn_so_that_a_slow_phase_does_not_count() {
        let ours = Times { name: "ours", nanos: vec![1.0, 10.0, 100.0] };
        let theirs = Times { name: "theirs", nanos: vec![2.0, 20.0, 200.0] };
        assert!((ours.ratio_to(&theirs) - 0.5).abs() < 1e-9);
        assert!(ours.quartiles_of_ratio_to(&theirs).iter().all(|ratio| (ratio - 0.5).abs() < 1e-9));
    }

    #[test]
    fn the_interval_is_from_the_sixth_round_to_the_fifteenth_however_wild_the_others_are() {
        // Round n, of 5 turns, has the ratio n; and one turn of each is off.
        let nanos = (0..100).map(|turn| if turn % 5 == 0 { 1e6 } else { f64::from(turn / 5) });
        let ours = Times { name: "ours", nanos: nanos.collect() };
        let theirs = Times { name: "theirs", nanos: vec![1.0; 100] };
        let ends = ours.interval_of_ratio_to(&theirs).map(f64::to_bits);
        assert_eq!(ends, [5.0_f64, 14.0].map(f64::to_bits), "counted from 0");
    }

    #[test]
    fn every_contender_has_every_turn() {
        let slow = |count| std::thread::sleep(BATCH * count);
        let times = race([Contender::new("one", slow), Contender::new("other", slow)]);
        assert!(times.iter().all(|times| times.nanos.len() == TURNS));
    }

    #[test]
    fn what_is_done_as_a_whole_is_done_once_after_each_preparation() {
        let prepare = |ready: &mut bool| assert!(!std::mem::replace(ready, true));
        let act = |ready: &mut bool| assert!(std::mem::take(ready));
        let [times] = race_in(7, [Contender::whole("all", 3, false, prepare, act)]);
        assert_eq!(times.nanos.len(), 7);
    }
}
