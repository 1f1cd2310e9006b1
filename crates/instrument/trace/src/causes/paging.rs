//! A guest's first accesses to its memory wait one by one: for a file that the memory is mapped from, as a restored VM's is, or
//! for the userfaultfd handler. Each such wait is short, and their sum is not.

use std::collections::BTreeMap;

use mayfly_record::units::duration;

use super::likely::likely;
use crate::life::runs_vcpu;
use crate::looks::SLACK;
use crate::record::{Cause, Sample, Stall, Trace};
use crate::times::Accounts;

/// Fewer waits are no habit.
const FEWEST: u64 = 8;
/// Where a fault reads a page of a file.
const OF_FILES: [&str; 3] = ["filemap_fault", "filemap_read_folio", "filemap_map_pages"];
const OF_HANDLERS: [&str; 1] = ["handle_userfault"];

/// The cause of so many waits that took so long.
type OfWaits = fn(u64, u64) -> Cause;

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let accounts = Accounts::of(trace);
    let mut of: BTreeMap<i32, Vec<&Sample>> = BTreeMap::new();
    for one in &trace.samples {
        of.entry(one.tid).or_default().push(one);
    }
    let causes: [(&[&str], OfWaits); 2] = [(&OF_FILES, of_file), (&OF_HANDLERS, of_handler)];
    let mut found = Vec::new();
    for looks in of.values() {
        for (functions, cause) in causes {
            let waits = waits(&accounts, looks, functions);
            let (long, short): (Vec<Waits>, _) =
                waits.into_iter().partition(|one| one.took / one.times >= trace.least());
            // The handler's long ones have a cause of their own.
            let long = long.iter().filter(|_| *functions == OF_FILES);
            found.extend(long.map(|one| stall("a vCPU's fault", *one, cause)));
            found.extend(
                sum(&short)
                    .into_iter()
                    .filter(|one: &Waits| one.times >= FEWEST && one.took >= trace.least())
                    .map(|one| stall("faults of the guest's, all together", one, cause)),
            );
        }
    }
    found
}

/// Waits of a thread, from when on, how often, and how long all together.
#[derive(Clone, Copy)]
struct Waits {
    tid: i32,
    at: u64,
    times: u64,
    took: u64,
}

/// The waits of a thread in these functions, while it ran a vCPU, by the looks that found it there.
fn waits(accounts: &Accounts, looks: &[&Sample], functions: &[&str]) -> Vec<Waits> {
    let wait = |(number, look): (usize, &&Sample)| {
        // One that waits in nothing runs, and its stack may be an older one.
        let is_there = look.channel.is_some() && look.is_in(functions) && runs_vcpu(look);
        let last = look.at + look.took;
        let until = looks.get(number + 1).map_or(last, |next| next.at).min(last + SLACK);
        let slept = accounts.spent(look.tid, (look.at, until), [].into_iter());
        let took = slept.map_or(0, |spent| spent.asleep());
        // One that got a processor meanwhile has waited several times.
        is_there.then_some(Waits { tid: look.tid, at: look.at, times: look.turns + 1, took })
    };
    looks.iter().enumerate().filter_map(wait).collect()
}

fn sum(all: &[Waits]) -> Option<Waits> {
    let first = *all.first()?;
    let times = all.iter().map(|one| one.times).sum();
    Some(Waits { times, took: all.iter().map(|one| one.took).sum(), ..first })
}

fn stall(what: &str, waits: Waits, cause: OfWaits) -> Stall {
    Stall {
        what: what.to_owned(),
        tid: waits.tid,
        at: waits.at,
        took: waits.took,
        cause: Some(cause(waits.times, waits.took)),
        ..Stall::default()
    }
}

fn evidence(waits: u64, took: u64, at: &str) -> Vec<String> {
    if waits == 1 {
        return vec![format!("the vCPU's thread slept {} {at}", duration(took))];
    }
    vec![
        format!("the vCPU's thread was seen to wait {waits} times {at}"),
        format!(
            "it slept {} in these waits, on average {} each",
            duration(took),
            duration(took / waits.max(1))
        ),
    ]
}

fn of_file(waits: u64, took: u64) -> Cause {
    likely(
        "snapshot-faults",
        "the guest's memory is read from a file page by page, when the guest wants it",
        "read what the guest wants first before it runs (MADV_POPULATE_READ, readahead), or keep the file in the page cache",
        evidence(waits, took, "for a page of a file"),
    )
}

fn of_handler(waits: u64, took: u64) -> Cause {
    likely(
        "serial-userfault",
        "the guest's memory comes from the userfaultfd handler page by page",
        "have the handler give the pages around each fault and those that are wanted first, or have more threads serve",
        evidence(waits, took, "for the userfaultfd handler"),
    )
}
