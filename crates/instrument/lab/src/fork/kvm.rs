//! Forks of a guest on the running kernel's KVM.

use std::ops::Range;
use std::time::Instant;

use mayfly_record::{ResultRow, Samples};

use super::names::{
    AT_ONCE, DESTROY, FIRST_EXIT, FORK, FORKS_AT_ONCE, MOST_UNSHARED, OWN_IDLE, REGISTERS, REQUESTS,
};
use super::template::{Design, Fork, Template};
use crate::start::{Start, Starts};
use crate::work::{self, Spent, ThreadRole, Used};

/// What measured work begins from.
const REQUEST: &str = "a fork's first request";

/// One design, and what came of its forks.
pub(super) struct Measured {
    design: Design,
    pub(super) variant: &'static str,
    fork: Samples,
    registers: Samples,
    first_exit: Samples,
    requests: [[Samples; 3]; REQUESTS.len()],
    destroy: Samples,
    at_once: Samples,
    own: [u64; 1 + REQUESTS.len()],
    forks_at_once: u64,
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
    pub(super) fn new(template: &Template, variant: &'static str) -> anyhow::Result<Self> {
        let design = Design::of(variant);
        let mut ahead = <[Vec<_>; REQUESTS.len()]>::default();
        if design == Design::Prefetch {
            for (ahead, pages) in ahead.iter_mut().zip(&REQUESTS) {
                let (mut fork, _) = template.fork(design, pages.count, &[])?;
                fork.request()?;
                *ahead = template.written(&fork)?;
                fork.destroy();
            }
        }
        Ok(Self {
            design,
            variant,
            fork: Samples::default(),
            registers: Samples::default(),
            first_exit: Samples::default(),
            requests: <[[Samples; 3]; REQUESTS.len()]>::default(),
            destroy: Samples::default(),
            at_once: Samples::default(),
            own: [0; 1 + REQUESTS.len()],
            forks_at_once: 0,
            ahead,
            starts: Starts::default(),
            spent: Vec::new(),
            wrong: 0,
            wrong_after_reset: 0,
        })
    }

    /// One round: a fork that answers at once, and one for each request.
    pub(super) fn round(&mut self, template: &Template) -> anyhow::Result<()> {
        let before = Used::here();
        let (mut fork, made) = template.fork(self.design, 0, &[])?;
        let first = fork.request()?;
        self.fork.record(made.fork);
        self.registers.record(made.registers);
        self.first_exit.record(made.fork + first);
        self.destroy.record(fork.destroy());
        for (index, pages) in REQUESTS.iter().enumerate() {
            let ahead = &self.ahead[index];
            let (mut fork, made) = template.fork(self.design, pages.count, ahead)?;
            let start = Start { slots: fork.slots(), vcpus: 1, ..Start::default() };
            self.starts.note(REQUEST, start);
            let request = fork.request()?;
            let begun = Instant::now();
            template.reset(&fork, self.design, ahead)?;
            let times = [made.fork + request, request, begun.elapsed()];
            for (samples, time) in self.requests[index].iter_mut().zip(times) {
                samples.record(time);
                samples.end_round();
            }
            fork.destroy();
        }
        let mut spent = Spent::default();
        spent.add(ThreadRole::Caller, Used::here() - before);
        self.spent.push(spent);
        for samples in
            [&mut self.fork, &mut self.registers, &mut self.first_exit, &mut self.destroy]
        {
            samples.end_round();
        }
        Ok(())
    }

    /// Looks, without a clock, at what forks find, and at what they have.
    pub(super) fn look(&mut self, template: &Template) -> anyhow::Result<()> {
        for (index, pages) in REQUESTS.iter().enumerate() {
            let ahead = &self.ahead[index];
            let (mut fork, _) = template.fork(self.design, pages.count, ahead)?;
            let (mut other, _) = template.fork(self.design, pages.count, &[])?;
            if index == 0 {
                self.own[0] = other.own_kib()?;
            }
            fork.request()?;
            self.own[1 + index] = fork.own_kib()?;
            self.wrong += fork.wrong(pages.count)?;
            // What one has written, no other one finds.
            self.wrong += other.wrong(0)?;
            other.request()?;
            template.reset(&fork, self.design, ahead)?;
            self.wrong_after_reset += fork.wrong(0)?;
            fork.request()?;
            self.wrong_after_reset += fork.wrong(pages.count)? + other.wrong(pages.count)?;
            fork.destroy();
            other.destroy();
        }
        Ok(())
    }

    /// Has so many forks at once, each of which answers the smallest request. Of a design that shares nothing, not more than
    /// have a GiB together.
    pub(super) fn all_at_once(
        &mut self,
        template: &Template,
        forks: u32,
        size: usize,
    ) -> anyhow::Result<()> {
        let shares = self.design != Design::Copy;
        let most = if shares { usize::MAX } else { (MOST_UNSHARED / size).max(1) };
        let count = most.min(forks as usize);
        let mut all: Vec<Fork> = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            let (mut fork, _) = template.fork(self.design, REQUESTS[0].count, &self.ahead[0])?;
            fork.request()?;
            self.at_once.record(begun.elapsed());
            all.push(fork);
        }
        self.at_once.end_round();
        self.forks_at_once = count as u64;
        // A few of them, since all of the memory is read.
        for fork in all.iter().step_by((count / 4).max(1)) {
            self.wrong += fork.wrong(REQUESTS[0].count)?;
        }
        for fork in all {
            fork.destroy();
        }
        Ok(())
    }

    /// Fills the row with what came of it.
    pub(super) fn report(&self, row: ResultRow, template: &Template) -> anyhow::Result<ResultRow> {
        let row = work::report(self.starts.report(row), &self.spent)
            .metric(FORK, &self.fork)
            .metric(REGISTERS, &self.registers)
            .metric(FIRST_EXIT, &self.first_exit)
            .metric(DESTROY, &self.destroy)
            .metric(AT_ONCE, &self.at_once)
            .counter(FORKS_AT_ONCE, self.forks_at_once)
            .counter(OWN_IDLE, self.own[0]);
        let row = REQUESTS.iter().enumerate().fold(row, |row, (index, pages)| {
            let [answer, request, reset] = &self.requests[index];
            row.metric(pages.answer, answer)
                .metric(pages.request, request)
                .metric(pages.reset, reset)
                .counter(pages.own, self.own[1 + index])
        });
        let (wrong, after, changed) = (self.wrong, self.wrong_after_reset, template.changed()?);
        Ok(row
            .check("forks_are_alone", wrong == 0, format!("{wrong} pages were not as written"))
            .check("reset_is_the_template", after == 0, format!("{after} pages were not"))
            .check("template_is_unchanged", changed == 0, format!("{changed} pages have changed")))
    }
}
