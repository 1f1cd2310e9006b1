//! A call that several threads make at once, each on a stage of its own.
//!
//! All of them wait for one lock, which the thread that has started them holds until every stage is made and has been left
//! alone. It lets go of it also where a thread could not be started, or a stage not be made, and says so before: then nobody
//! calls, and all threads end.

use std::sync::RwLock;
use std::sync::mpsc::channel;
use std::thread::{Builder, scope, sleep};
use std::time::Duration;

use crate::kernel::{Failed, Taken};
use crate::series::median;

/// What a thread that waits finds when it is let go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Closed,
    Open,
}

/// The medians of the times of `n` threads that `call` at once, `settled` after the last has `make` made what it needs.
pub(super) fn take<S>(
    n: u64,
    settled: Duration,
    make: impl Fn() -> Result<S, Failed> + Sync,
    call: impl Fn(S) -> Result<Taken, Failed> + Sync,
) -> Result<Taken, Failed> {
    each(n, settled, make, call).map(|all| middle(&all))
}

/// The times of the threads.
fn each<S>(
    n: u64,
    settled: Duration,
    make: impl Fn() -> Result<S, Failed> + Sync,
    call: impl Fn(S) -> Result<Taken, Failed> + Sync,
) -> Result<Vec<Taken>, Failed> {
    let gate = RwLock::new(Gate::Closed);
    scope(|scope| {
        let mut held = gate.write().map_err(|_| Failed("a thread has panicked".to_owned()))?;
        let (ready, answers) = channel();
        let mut threads = Vec::new();
        let mut failed = None;
        for _ in 0..n {
            let ready = ready.clone();
            let (gate, make, call) = (&gate, &make, &call);
            let thread = move || {
                let stage = make();
                // Where nobody listens any more, the gate stays closed.
                let _ = ready.send(stage.as_ref().err().cloned());
                // The one who listens does so until nobody can say anything more: also where a thread has panicked.
                drop(ready);
                // Not for longer than it takes to look: a thread that calls keeps none of the others waiting.
                let is_open = gate.read().is_ok_and(|gate| *gate == Gate::Open);
                stage.and_then(|stage| {
                    if is_open { call(stage) } else { Err(Failed("nobody called".to_owned())) }
                })
            };
            match Builder::new().spawn_scoped(scope, thread) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    failed = Some(Failed(format!("a thread: {error}")));
                    break;
                }
            }
        }
        drop(ready);
        if failed.is_none() {
            failed = answers.iter().flatten().next();
        }
        if failed.is_none() {
            sleep(settled);
            *held = Gate::Open;
        }
        drop(held);
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failed("a thread has panicked".to_owned())))
        });
        let all: Vec<Result<Taken, Failed>> = ended.collect();
        match failed {
            Some(failed) => Err(failed),
            None => all.into_iter().collect(),
        }
    })
}

fn middle(all: &[Taken]) -> Taken {
    let of = |part: fn(&Taken) -> u64| median(all.iter().map(part).collect());
    Taken {
        wall: of(|taken| taken.wall),
        cpu: of(|taken| taken.cpu),
        queued: of(|taken| taken.queued),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;
    const TAKEN: Taken = Taken { wall: 5, cpu: 4, queued: 1 };

    #[test]
    fn no_thread_calls_before_all_have_made_what_they_need() {
        let (stages, called) = (AtomicU64::new(0), AtomicU64::new(0));
        let make = || Ok(stages.fetch_add(1, Ordering::SeqCst));
        // All of them are in the call at the same time, or this never ends.
        let together = Barrier::new(8);
        let call = |_| {
            assert_eq!(stages.load(Ordering::SeqCst), 8);
            called.fetch_add(1, Ordering::SeqCst);
            together.wait();
            Ok(TAKEN)
        };
        assert_eq!(each(8, AT_ONCE, make, call), Ok(vec![TAKEN; 8]));
        assert_eq!(called.load(Ordering::SeqCst), 8);
    }

    #[test]
    fn where_one_cannot_make_what_it_needs_nobody_calls_and_all_end() {
        let stages = AtomicU64::new(0);
        let make = || match stages.fetch_add(1, Ordering::SeqCst) {
            3 => Err(Failed("EMFILE".into())),
            _ => Ok(()),
        };
        let called = AtomicU64::new(0);
        let call = |()| {
            called.fetch_add(1, Ordering::SeqCst);
            Ok(TAKEN)
        };
        assert_eq!(each(8, AT_ONCE, make, call), Err(Failed("EMFILE".into())));
        assert_eq!(called.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_call_that_fails_or_panics_fails_the_sample() {
        let some = AtomicU64::new(0);
        let fails = |()| match some.fetch_add(1, Ordering::SeqCst) {
            2 => Err(Failed("EBUSY".into())),
            _ => Ok(TAKEN),
        };
        assert_eq!(each(4, AT_ONCE, || Ok(()), fails), Err(Failed("EBUSY".into())));
        let panics =
            each(2, AT_ONCE, || Ok(()), |()| -> Result<Taken, Failed> { panic!("as it is to") });
        assert_eq!(panics, Err(Failed("a thread has panicked".into())));
        let panics =
            each(2, AT_ONCE, || -> Result<(), Failed> { panic!("as it is to") }, |()| Ok(TAKEN));
        assert_eq!(panics, Err(Failed("a thread has panicked".into())));
    }
}
