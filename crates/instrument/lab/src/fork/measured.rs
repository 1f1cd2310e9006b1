//! What came of the forks of one design: one after another by itself, and many.

use std::ops::Range;
use std::time::Instant;

use mayfly_record::{Limits, ResultRow, Samples};

use super::design::Design;
use super::ground::{Forked, Ground, changed, written, wrong};
use super::names::{
    ALL_AT_ONCE, AT_ONCE, DESTROY, FIRST_EXIT, FORK, FORKS_AT_ONCE, IN_TURN, OWN_IDLE, PARENT,
    REGISTERS, REQUESTS,
};
use super::needs::at_once;
use crate::params::Size;
use crate::start::Starts;
use crate::work::{self, Meter, Spent};

/// What measured work begins from.
const REQUEST: &str = "a fork's first request";
const AGAIN: &str = "what a parent writes again";

/// One design, and what came of forks of which there is one at a time.
pub(super) struct Measured {
    design: Design,
    pub(super) variant: &'static str,
    fork: Samples,
    registers: Samples,
    first_exit: Samples,
    requests: [[Samples; 3]; REQUESTS.len()],
    destroy: Samples,
    parent: Samples,
    own: [u64; 1 + REQUESTS.len()],
    /// Of the first request, and of the one after the reset; none where they are not counted.
    faults: [Option<[u64; 2]>; REQUESTS.len()],
    /// Pages that an earlier fork has written, for each request.
    ahead: [Vec<Range<usize>>; REQUESTS.len()],
    starts: Starts,
    spent: Vec<Spent>,
    /// Pages that held something else than they should.
    wrong: usize,
    /// Of forks that went back.
    wrong_after_reset: usize,
}

impl Measured {
    /// Nothing yet. Of a design that goes by what was written, a fork is run for each request.
    pub(super) fn new<G: Ground>(ground: &G, variant: &'static str) -> anyhow::Result<Self> {
        let design = Design::of(variant);
        let mut ahead = <[Vec<_>; REQUESTS.len()]>::default();
        if design == Design::Prefetch {
            for (ahead, pages) in ahead.iter_mut().zip(&REQUESTS) {
                let (mut fork, _) = ground.fork(design, pages.count, &[])?;
                fork.request()?;
                *ahead = written(ground, &fork)?;
                fork.destroy();
            }
        } else {
            // So that it is known before anything is measured whether the design runs here.
            ground.fork(design, 0, &[])?.0.destroy();
        }
        Ok(Self {
            design,
            variant,
            fork: Samples::default(),
            registers: Samples::default(),
            first_exit: Samples::default(),
            requests: <[[Samples; 3]; REQUESTS.len()]>::default(),
            destroy: Samples::default(),
            parent: Samples::default(),
            own: [0; 1 + REQUESTS.len()],
            faults: [None; REQUESTS.len()],
            ahead,
            starts: Starts::default(),
            spent: Vec::new(),
            wrong: 0,
            wrong_after_reset: 0,
        })
    }

    /// One round: a fork that answers at once, one for each request, and a parent.
    pub(super) fn round<G: Ground>(&mut self, ground: &G) -> anyhow::Result<()> {
        let meter = Meter::begin(ground.threads());
        let (mut fork, made) = ground.fork(self.design, 0, &[])?;
        let first = fork.request()?;
        self.fork.record(made.fork);
        if let Some(registers) = made.registers {
            self.registers.record(registers);
        }
        self.first_exit.record(made.fork + first);
        self.destroy.record(fork.destroy());
        for (index, pages) in REQUESTS.iter().enumerate() {
            let ahead = &self.ahead[index];
            let (mut fork, made) = ground.fork(self.design, pages.count, ahead)?;
            self.starts.note(REQUEST, fork.start());
            let request = fork.request()?;
            let begun = Instant::now();
            ground.reset(&fork, self.design, ahead)?;
            let times = [made.fork + request, request, begun.elapsed()];
            for (samples, time) in self.requests[index].iter_mut().zip(times) {
                samples.record(time);
                samples.end_round();
            }
            fork.destroy();
        }
        self.spent.push(meter.end());
        let parent = ground.parent(self.design)?;
        self.starts.note(AGAIN, parent.start);
        self.parent.record(parent.cost);
        for samples in [
            &mut self.fork,
            &mut self.registers,
            &mut self.first_exit,
            &mut self.destroy,
            &mut self.parent,
        ] {
            samples.end_round();
        }
        Ok(())
    }

    /// Looks, without a clock, at what forks find, and at what they have.
    pub(super) fn look<G: Ground>(&mut self, ground: &G) -> anyhow::Result<()> {
        for (index, pages) in REQUESTS.iter().enumerate() {
            let ahead = &self.ahead[index];
            let (mut fork, _) = ground.fork(self.design, pages.count, ahead)?;
            let (mut other, _) = ground.fork(self.design, pages.count, &[])?;
            if index == 0 {
                self.own[0] = other.own_kib()?;
            }
            fork.request()?;
            let first = fork.faults();
            self.own[1 + index] = fork.own_kib()?;
            self.wrong += wrong(ground, &fork, pages.count)?;
            // What one has written, no other one finds.
            self.wrong += wrong(ground, &other, 0)?;
            other.request()?;
            ground.reset(&fork, self.design, ahead)?;
            self.wrong_after_reset += wrong(ground, &fork, 0)?;
            fork.request()?;
            let both = first.zip(fork.faults());
            self.faults[index] = both.map(|(first, all)| [first, all - first]);
            self.wrong_after_reset +=
                wrong(ground, &fork, pages.count)? + wrong(ground, &other, pages.count)?;
            fork.destroy();
            other.destroy();
        }
        Ok(())
    }

    /// Has so many forks, each of which answers the smallest request: one after the other, and then all at once. There are
    /// fewer where they would have [too much memory](at_once).
    pub(super) fn many<G: Ground>(
        &self,
        ground: &G,
        forks: u32,
        size: Size,
    ) -> anyhow::Result<Many> {
        let meter = Meter::begin(ground.threads());
        let (count, why) = at_once(self.design, forks, size, Limits::gather().available());
        let mut many = Many { count, why, ..Many::default() };
        let (pages, ahead) = (REQUESTS[0].count, &self.ahead[0]);
        for _ in 0..count {
            let begun = Instant::now();
            let (mut fork, _) = ground.fork(self.design, pages, ahead)?;
            fork.request()?;
            fork.destroy();
            many.in_turn.record(begun.elapsed());
        }
        let mut all: Vec<G::Fork> = Vec::with_capacity(count as usize);
        let first = Instant::now();
        for _ in 0..count {
            let begun = Instant::now();
            let (mut fork, _) = ground.fork(self.design, pages, ahead)?;
            fork.request()?;
            many.at_once.record(begun.elapsed());
            all.push(fork);
        }
        many.all.record(first.elapsed());
        many.spent = meter.end();
        for samples in [&mut many.in_turn, &mut many.at_once, &mut many.all] {
            samples.end_round();
        }
        // A few of them, since all of the memory is read.
        for fork in all.iter().step_by((count as usize / 4).max(1)) {
            many.wrong += wrong(ground, fork, pages)?;
        }
        for fork in all {
            fork.destroy();
        }
        // One that has not run, as each of them began.
        let (fork, _) = ground.fork(self.design, pages, &[])?;
        many.starts.note(REQUEST, fork.start());
        fork.destroy();
        Ok(many)
    }

    /// Fills the row with what came of it.
    pub(super) fn report<G: Ground>(
        &self,
        row: ResultRow,
        ground: &G,
    ) -> anyhow::Result<ResultRow> {
        let row = work::report(self.starts.report(row), &self.spent)
            .metric(FORK, &self.fork)
            .metric(REGISTERS, &self.registers)
            .metric(FIRST_EXIT, &self.first_exit)
            .metric(DESTROY, &self.destroy)
            .metric(PARENT, &self.parent)
            .counter(OWN_IDLE, self.own[0]);
        let row = REQUESTS.iter().enumerate().fold(row, |row, (index, pages)| {
            let [answer, request, reset] = &self.requests[index];
            let row = row
                .metric(pages.answer, answer)
                .metric(pages.request, request)
                .metric(pages.reset, reset)
                .counter(pages.own, self.own[1 + index]);
            match self.faults[index] {
                Some([first, again]) => {
                    row.counter(pages.faults, first).counter(pages.faults_again, again)
                }
                None => row,
            }
        });
        let (wrong, after, changed) = (self.wrong, self.wrong_after_reset, changed(ground)?);
        Ok(row
            .check("forks_are_alone", wrong == 0, format!("{wrong} pages were not as written"))
            .check("reset_is_the_template", after == 0, format!("{after} pages were not"))
            .check("template_is_unchanged", changed == 0, format!("{changed} pages have changed")))
    }
}

/// What came of many forks of one design.
#[derive(Default)]
pub(super) struct Many {
    count: u32,
    /// Why there were not more.
    why: Option<String>,
    in_turn: Samples,
    at_once: Samples,
    all: Samples,
    starts: Starts,
    spent: Spent,
    wrong: usize,
}

impl Many {
    /// Fills the row with what came of it.
    pub(super) fn report(&self, row: ResultRow) -> ResultRow {
        let wrong = self.wrong;
        let row = work::report(self.starts.report(row), [&self.spent])
            .metric(IN_TURN, &self.in_turn)
            .metric(AT_ONCE, &self.at_once)
            .metric(ALL_AT_ONCE, &self.all)
            .counter(FORKS_AT_ONCE, self.count.into())
            .check("forks_are_alone", wrong == 0, format!("{wrong} pages were not as written"));
        match &self.why {
            Some(why) => row.finding(FORKS_AT_ONCE, why),
            None => row,
        }
    }
}
