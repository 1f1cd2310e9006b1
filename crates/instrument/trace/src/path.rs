//! The critical paths of the start and of the end of a VM: what the next thread had to wait for, which is not always
//! what took long.
//!
//! A path is found backwards. It follows a thread from its end back to where another thread last woke it. From there
//! it follows the other thread, without which the first would have slept on. At the beginning of a thread it
//! continues with the thread that created it. The path has what each thread was doing on the way. So a wait for
//! another thread is not on the path, and what that thread did meanwhile is.
//!
//! tracefs shows which thread wakes which. `ptrace` has no event for the end of a wait: the ends of waits are taken
//! from looks at the thread. The thread that ended a wait is inferred, if a thread ended just then, or if there was
//! only one other thread.

mod critical;
mod held;
mod index;
mod pieces;
mod runnable;
mod short;
#[cfg(test)]
mod tests;
mod wakes;
mod walk;

use crate::life::runs_vcpu;
use crate::record::Trace;
pub use critical::{CriticalPath, Doing, Piece};
pub(crate) use held::Held;
use index::Index;
use pieces::pieces;
pub(crate) use runnable::Runnable;
pub(crate) use short::sums;
use wakes::Wakes;
pub(crate) use walk::Wait;
use walk::Walk;

/// A path that is looked for: where it leads to, how far back it goes, and the thread that it is followed back from.
pub(crate) struct Way {
    pub(crate) to: String,
    pub(crate) from: u64,
    pub(crate) tid: i32,
    pub(crate) end: u64,
}

impl Trace {
    /// The critical paths of the start and of the end, where these were seen.
    pub(crate) fn find_critical_paths(&self) -> Vec<CriticalPath> {
        let ended = |name: &str| self.phases.iter().find(|one| one.name == name).map(|one| one.at);
        let runner = self.first_entry().and_then(|_| self.first_runner());
        let start = runner.map(|(tid, entry)| {
            let asked = self.from.as_ref().map(|from| from.at).filter(|at| *at < entry);
            let from = asked.or_else(|| ended("exec")).unwrap_or(0);
            Way { to: "first entry".to_owned(), from, tid, end: entry }
        });
        let stop = || {
            let (exit, gone) = (self.last_exit()?, ended("process gone")?);
            let last = self.last_gone(self.vmm()?)?;
            let end = last.gone.unwrap_or(gone).min(gone);
            let to = "process gone".to_owned();
            (exit < end).then_some(Way { to, from: exit, tid: last.tid, end })
        };
        self.find_paths([start, stop()].into_iter().flatten())
    }

    /// The critical paths of these ways.
    pub(crate) fn find_paths(&self, ways: impl Iterator<Item = Way>) -> Vec<CriticalPath> {
        let index = Index::of(self);
        let wakes = Wakes::of(self, &index);
        let path = |Way { to, from, tid, end }| {
            let Walk { stretches, inferred, .. } = self.walk(&wakes, from, (tid, end));
            let pieces = pieces(&index, &stretches);
            let at = pieces.first().map_or(end, |piece| piece.at);
            CriticalPath { to, at, took: end - at, inferred, pieces }
        };
        ways.map(path).collect()
    }

    /// The thread that ran a vCPU first, and when.
    fn first_runner(&self) -> Option<(i32, u64)> {
        let call =
            self.calls.iter().find(|call| call.name == "KVM_RUN").map(|call| (call.tid, call.at));
        let seen =
            || self.samples.iter().find(|sample| runs_vcpu(sample)).map(|one| (one.tid, one.at));
        call.or_else(seen)
    }
}
