//! What forks begin from, and a fork, whatever runs them.

use std::ops::Range;
use std::time::Duration;

use mayfly_kvm::Payload;
use mayfly_record::Backend;

use super::design::Design;
use crate::start::Start;
use crate::work::Threads;

pub(super) const PAGE: usize = 4096;

/// Where the pages begin that requests write, one after the other: on every backend behind what the guest of KVM needs.
pub(super) const FIRST: usize = Payload::FREE as usize;

/// Pages that a parent writes again.
pub(super) const AGAIN: usize = 1000;

/// A guest that runs no more, and what makes guests that go on as it was.
pub(super) trait Ground {
    const BACKEND: Backend;

    type Fork: Forked;

    /// Makes a fork of which a request writes so many pages; of none, it reads one. `ahead` are pages to be written ahead.
    fn fork(
        &self,
        design: Design,
        pages: usize,
        ahead: &[Range<usize>],
    ) -> anyhow::Result<(Self::Fork, Made)>;

    /// Has a fork's memory be the template's again; what it has written is gone.
    fn reset(
        &self,
        fork: &Self::Fork,
        design: Design,
        ahead: &[Range<usize>],
    ) -> anyhow::Result<()>;

    /// What a fork costs the guest that is forked, and goes on.
    fn parent(&self, design: Design) -> anyhow::Result<Parent>;

    /// The template's size in bytes.
    fn size(&self) -> usize;

    /// The template's word at `offset`.
    fn read_u64(&self, offset: usize) -> anyhow::Result<u64>;

    /// The threads beside the calling one.
    fn threads(&self) -> Threads;
}

/// A VM that begins as a template was.
pub(super) trait Forked {
    /// Has the guest write its pages and answer. Returns how long that took.
    fn request(&mut self) -> anyhow::Result<Duration>;

    /// How many requests it has answered.
    fn passes(&self) -> u32;

    /// What its VM has.
    fn start(&self) -> Start;

    /// KiB of memory that it has of its own.
    fn own_kib(&self) -> anyhow::Result<u64>;

    /// How often its guest has faulted, where that is counted.
    fn faults(&self) -> Option<u64>;

    /// The word at `offset` of its memory.
    fn read_u64(&self, offset: usize) -> anyhow::Result<u64>;

    /// Ends it. Returns how long that took, with its memory.
    fn destroy(self) -> Duration;
}

/// What making a fork took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// All of it.
    pub(super) fork: Duration,
    /// The vCPU's registers alone, where it has some.
    pub(super) registers: Option<Duration>,
}

/// What came of a guest that was forked, and went on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    /// For how long it stood still for the fork, and what it took longer then to write [`AGAIN`] pages than before.
    pub(super) cost: Duration,
    /// What its VM had.
    pub(super) start: Start,
}

/// What every page of a template begins with: its number, and a mark.
pub(super) fn content(page: usize) -> u64 {
    0xfeed_0000_0000_0000 | page as u64
}

/// The range of pages that a request writes.
pub(super) fn touched(pages: usize) -> Range<usize> {
    FIRST..FIRST + pages * PAGE
}

/// The pages that a fork has written, those that follow each other together.
pub(super) fn written<G: Ground>(ground: &G, fork: &G::Fork) -> anyhow::Result<Vec<Range<usize>>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for offset in (0..ground.size()).step_by(PAGE) {
        if fork.read_u64(offset)? == ground.read_u64(offset)? {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.end == offset => last.end += PAGE,
            _ => runs.push(offset..offset + PAGE),
        }
    }
    Ok(runs)
}

/// How many pages the template has that are not as they were when it was made.
pub(super) fn changed(ground: &impl Ground) -> anyhow::Result<usize> {
    let mut changed = 0;
    for offset in (FIRST..ground.size()).step_by(PAGE) {
        changed += usize::from(ground.read_u64(offset)? != content(offset / PAGE));
    }
    Ok(changed)
}

/// Pages of a fork among those that a request of `pages` writes that do not say so, and pages behind them that are not the
/// template's.
pub(super) fn wrong<G: Ground>(ground: &G, fork: &G::Fork, pages: usize) -> anyhow::Result<usize> {
    let (range, mut wrong) = (touched(pages), 0);
    for offset in (FIRST..ground.size()).step_by(PAGE) {
        let right =
            if range.contains(&offset) { fork.passes().into() } else { content(offset / PAGE) };
        wrong += usize::from(fork.read_u64(offset)? != right);
    }
    Ok(wrong)
}
