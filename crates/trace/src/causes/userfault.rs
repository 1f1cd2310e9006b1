//! A guest touches memory that is not there, and whoever gives it takes its time.

use super::likely;
use crate::record::{Sample, Stall, Trace};

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let waits = |one: &&Sample| {
        one.stack.iter().chain(&one.channel).any(|name| name == "handle_userfault")
            && trace.threads.iter().any(|thread| thread.tid == one.tid && trace.ran_vcpu(thread))
            && one.took >= trace.least()
    };
    let stall = |one: &Sample| {
        let evidence = vec![format!("its thread was seen in handle_userfault {} times", one.seen)];
        let cause = likely(
            "userfault",
            "a vCPU waits for a page that userfaultfd is to bring",
            "bring the pages that a guest touches first before it runs, or have more threads bring them",
            evidence,
        );
        Stall {
            what: "a vCPU's fault".to_owned(),
            tid: one.tid,
            at: one.at,
            took: one.took,
            cause: Some(cause),
            ..Stall::default()
        }
    };
    trace.samples.iter().filter(waits).map(stall).collect()
}
