//! Critical paths of a VMM with a thread for its vCPU.

use mayfly_trace::{Choice, CriticalPath, Doing, Error, Piece, Thread, Trace};

use crate::{launch, traced_by};

/// By both recorders, as far as they are there.
fn traces(arguments: &[&str]) -> Vec<Trace> {
    let by = |choice| match traced_by(choice, &launch(arguments)) {
        Err(Error::NoTracefs(why)) => {
            println!("not run by tracefs: {why}");
            None
        }
        traced => Some(traced.unwrap()),
    };
    [Choice::Ptrace, Choice::Tracefs].into_iter().filter_map(by).collect()
}

fn path<'a>(trace: &'a Trace, to: &str) -> &'a CriticalPath {
    trace.critical_paths.iter().find(|path| path.to == to).unwrap()
}

fn runner(trace: &Trace) -> &Thread {
    trace.threads.iter().find(|thread| thread.vcpu).unwrap()
}

pub(crate) fn of_two_threads() {
    for trace in traces(&["sleep=20", "poll=30", "fault=20"]) {
        let (start, runner) = (path(&trace, "first entry"), runner(&trace));
        assert_eq!(runner.maker, Some(runner.pid));
        let [first, last] = [&start.pieces[0], &start.pieces[start.pieces.len() - 1]];
        // What is too short to be told apart is the last one's that had a part in it.
        assert!(first.tid == runner.pid || start.pieces.len() == 1, "{start:?}");
        assert_eq!(last.tid, runner.tid, "{start:?}");
        assert_eq!(Some(start.at + start.took), trace.first_entry());
        let asleep = |piece: &&Piece| matches!(piece.doing, Doing::Sleeps { .. });
        let slept = start.pieces.iter().find(asleep).expect("20 ms before the vCPU");
        assert!(slept.took >= 20_000_000 && slept.tid == runner.pid, "{start:?}");
        // Whoever polls is seen to sleep, and is woken by nobody; where others load the host, a sleep may be over as the
        // vCPU is left.
        let stop = path(&trace, "process gone");
        let sleeps =
            trace.calls.iter().filter(|call| call.name == "sleep" && call.tid == runner.pid);
        let rest = sleeps.map(|sleep| sleep.end().saturating_sub(sleep.at.max(stop.at))).max();
        assert!(rest.is_some(), "{:?}", trace.calls);
        let is_small = rest < Some(stop.took / 10);
        assert!(is_small || stop.pieces.iter().any(|piece| asleep(&piece)), "{rest:?} {stop:?}");
        for path in [start, stop] {
            assert!(path.pieces.len() <= 10, "{path:?}");
            let took: u64 = path.pieces.iter().map(|piece| piece.took).sum();
            assert_eq!(took, path.took, "{path:?}");
        }
        assert!(trace.to_json().contains("critical_paths"));
    }
}

pub(crate) fn joined() {
    // The first thread waits in its join while the vCPU's is in its guest, whose first page comes late.
    for trace in traces(&["fault=40"]).iter().filter(|trace| !trace.wakes.is_empty()) {
        let runner = runner(trace);
        let by_runner = |wake: &&mayfly_trace::Wake| {
            wake.tid == runner.pid && wake.by == Some(runner.tid) && wake.since < wake.at
        };
        let wake = trace.wakes.iter().rfind(by_runner).expect("it was joined");
        assert!(Some(wake.at) >= trace.last_exit(), "{wake:?}");
        // So what the runner did up to there is on the path, and the wait for it is not.
        let stop = path(trace, "process gone");
        assert!(!stop.inferred && stop.pieces[0].at <= wake.at, "{stop:?}");
    }
}
