//! A measured part, from its beginning to its end.

use super::role::ThreadRole;
use super::spent::Spent;
use super::threads::{Read, Threads};
use super::used::Used;

/// Counts what threads do from its beginning on.
pub(crate) struct Meter {
    threads: Threads,
    begun: Read,
    caller: Used,
}

impl Meter {
    /// Begins: of `threads` and of the calling one.
    pub(crate) fn begin(threads: Threads) -> Self {
        let begun = threads.read();
        Self { threads, begun, caller: Used::here() }
    }

    /// Ends, on the thread that began.
    pub(crate) fn end(self) -> Spent {
        let caller = Used::here() - self.caller;
        let mut spent = self.threads.since(&self.begun);
        spent.add(ThreadRole::Caller, caller);
        spent
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::scope;

    use rustix::thread::gettid;

    use super::super::used::burn;
    use super::*;

    #[test]
    fn each_threads_work_is_its_roles_and_of_the_measured_part_alone() {
        const WORK: u64 = 3_000_000;
        let (tell, told) = channel();
        let ((go, gone), (done, is_done)) = (channel::<()>(), channel());
        scope(|scope| {
            scope.spawn(move || {
                burn(WORK);
                tell.send(gettid()).unwrap();
                gone.recv().unwrap();
                burn(2 * WORK);
                done.send(()).unwrap();
                // Lives on until it has been read.
                let _ = gone.recv();
            });
            let threads = Threads::default().and(ThreadRole::Worker, told.recv().unwrap());
            burn(WORK);
            let meter = Meter::begin(threads);
            go.send(()).unwrap();
            is_done.recv().unwrap();
            let spent = meter.end();
            drop(go);
            let cpu = |role| spent.of(role).unwrap().cpu;
            let (worker, caller) = (cpu(ThreadRole::Worker), cpu(ThreadRole::Caller));
            assert!((2 * WORK..3 * WORK).contains(&worker), "{worker}");
            assert!(caller < WORK, "it slept: {caller}");
            assert_eq!(spent.cpu(), Some(worker + caller));
            assert_eq!(spent.of(ThreadRole::Vcpu), None, "there was none");
        });
    }
}
