//! Going through the probes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_kvm::Kvm;
use mayfly_record::{Begun, Host};

use crate::examination::{Examination, tick_of};
use crate::probe::{self, Probe};
use crate::row::row;

/// Until when all has to be there: what a call that never returns costs.
const LONGEST: Duration = Duration::from_millis(9500);

/// Examines `host`, by its `kvm`: ten seconds at the most.
pub fn examine(kvm: Kvm, host: Host) -> Examination {
    let tick = tick_of(&host);
    examine_with(probe::all(kvm, tick), host, LONGEST)
}

/// Goes through `probes` on a thread of its own, and waits for it as long as `longest`. What has not come back by then, or
/// has failed inside, is a row that says so.
pub fn examine_with(probes: Vec<Probe>, host: Host, longest: Duration) -> Examination {
    let (begun, conditions) = (Instant::now(), Begun::now());
    let names: Vec<&'static str> = probes.iter().map(|probe| probe.name).collect();
    let (pairs, rows) = (Vec::new(), Vec::new());
    let mut found = Examination { host, pairs, rows, took: longest, conditions: None };
    let (tell, told) = channel();
    // A part of the time is left for what is under way when no more is begun.
    let until = begun + longest.mul_f64(0.8);
    let thread = thread::Builder::new().name("probes".into()).spawn(move || {
        for Probe { run, .. } in probes {
            let given = catch_unwind(AssertUnwindSafe(|| run(until)));
            if tell.send(given.ok()).is_err() {
                return;
            }
        }
    });
    let refused =
        thread.err().map(|error| format!("no thread could be started for the probes: {error}"));
    for name in names {
        let left = longest.saturating_sub(begun.elapsed());
        let missing = match told.recv_timeout(left) {
            Ok(Some(given)) => {
                found.pairs.extend(given.pairs);
                found.rows.extend(given.rows);
                continue;
            }
            Ok(None) => "the probe panicked: this is a defect of Mayfly".to_owned(),
            Err(RecvTimeoutError::Timeout) => {
                format!("a call has not returned after {:.0} s", longest.as_secs_f64())
            }
            Err(RecvTimeoutError::Disconnected) => refused.clone().unwrap_or_default(),
        };
        found.rows.push(row(name).skipped(missing));
    }
    (found.took, found.conditions) = (begun.elapsed(), Some(conditions.until_now()));
    found
}
