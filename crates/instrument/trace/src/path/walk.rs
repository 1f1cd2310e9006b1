//! Follows a path back from its end.

use super::critical::CriticalPath;
use super::index::Index;
use super::pieces::Stretch;
use super::wakes::Wakes;
use crate::record::{Thread, Trace};

/// The most turns of a path: a longer one would not be readable.
const MOST_TURNS: usize = 10_000;

/// What is found on the way back along a path.
pub(super) struct Walk {
    /// Whom everything hung on, in order, without gaps.
    pub(super) stretches: Vec<Stretch>,
    /// The waits that another thread ended, and which the path leaves out for what that one did meanwhile.
    pub(super) waits: Vec<Wait>,
    /// Whether anything was inferred.
    pub(super) inferred: bool,
}

/// A wait, as one that the path goes around; or many short ones as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) tid: i32,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) by: Option<i32>,
    /// How often it slept between `from` and `to`, and how long, all together.
    pub(crate) times: u64,
    pub(crate) slept: u64,
}

impl Wait {
    /// A thread has slept once, between two moments.
    pub(crate) fn once(tid: i32, (from, to): (u64, u64), by: Option<i32>) -> Self {
        Self { tid, from, to, by, times: 1, slept: to.saturating_sub(from) }
    }
}

impl Trace {
    /// The ways back along all critical paths.
    pub(super) fn walks(&self, index: &Index) -> Vec<Walk> {
        let wakes = Wakes::of(self, index);
        let of_lives = self.lives.iter().flat_map(|life| &life.critical_paths);
        let walk = |path: &CriticalPath| {
            let end = (path.pieces.last()?.tid, path.at + path.took);
            Some(self.walk(&wakes, path.at, end))
        };
        self.critical_paths.iter().chain(of_lives).filter_map(walk).collect()
    }

    /// Goes back from a thread's end, down to `from` if it was seen so far back.
    pub(super) fn walk(&self, wakes: &Wakes, from: u64, (tid, end): (i32, u64)) -> Walk {
        let (mut all, mut waits) = (Vec::new(), Vec::new());
        let (mut tid, mut now, mut inferred) = (tid, end, false);
        for _ in 0..MOST_TURNS {
            let begun = self.thread_at(tid, now).map_or(from, |thread| thread.at.max(from));
            let woken = wakes.last(tid, now).filter(|wake| wake.at > begun);
            let (since, next) = match (woken, self.thread_at(tid, now)) {
                (Some(wake), _) => {
                    inferred |= wakes.inferred;
                    let (from, to) = (wake.since.max(from), wake.at);
                    let wait = (!wake.was_idle).then(|| Wait::once(tid, (from, to), wake.by));
                    waits.extend(wait);
                    (wake.at, wake.by)
                }
                // The thread that created it had to come first.
                (None, Some(Thread { at, maker, .. })) if *at > from => {
                    (*at, self.maker(*maker, tid, *at))
                }
                (None, _) => (from, None),
            };
            let since = since.min(now);
            if since < now {
                all.push(Stretch { tid, from: since, to: now });
            }
            let Some(next) = next.filter(|_| since > from) else { break };
            (tid, now) = (next, since);
        }
        all.reverse();
        Walk { stretches: all, waits, inferred }
    }

    fn thread_at(&self, tid: i32, at: u64) -> Option<&Thread> {
        self.thread_number(tid, at).map(|number| &self.threads[number])
    }

    /// The thread that created a thread, as recorded; else the first thread of its process, if that was there.
    fn maker(&self, told: Option<i32>, tid: i32, at: u64) -> Option<i32> {
        let first = || {
            let pid = self.thread_at(tid, at)?.pid;
            self.thread_at(pid, at).map(|thread| thread.tid)
        };
        told.or_else(first).filter(|maker| *maker != tid)
    }
}
