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
    let found = of.values().flat_map(|looks| {
        causes
            .iter()
            .filter_map(|(functions, cause)| sum(trace, &accounts, looks, functions, *cause))
    });
    found.collect()
}

/// The waits of a thread in these functions, while it ran a vCPU, as one.
fn sum(
    trace: &Trace,
    accounts: &Accounts,
    looks: &[&Sample],
    functions: &[&str],
    cause: OfWaits,
) -> Option<Stall> {
    let (mut waits, mut took, mut first) = (0, 0, None);
    for (number, look) in looks.iter().enumerate() {
        // One that waits in nothing runs, and its stack may be an older one.
        let is_there = look.channel.is_some() && look.is_in(functions);
        let last = look.at + look.took;
        let until = looks.get(number + 1).map_or(last, |next| next.at).min(last + SLACK);
        let slept = accounts.spent(look.tid, (look.at, until), [].into_iter());
        let slept = slept.map_or(0, |spent| spent.asleep());
        // A long one is a wait by itself.
        if !is_there || !runs_vcpu(look) || slept >= trace.least() {
            continue;
        }
        (waits, took) = (waits + 1, took + slept);
        first.get_or_insert(*look);
    }
    let first = first.filter(|_| waits >= FEWEST && took >= trace.least())?;
    Some(Stall {
        what: "faults of the guest's, all together".to_owned(),
        tid: first.tid,
        at: first.at,
        took,
        cause: Some(cause(waits, took)),
        ..Stall::default()
    })
}

fn evidence(waits: u64, took: u64, at: &str) -> Vec<String> {
    vec![
        format!("in {waits} looks at the vCPU's thread it waited {at}"),
        format!("it slept {} in these waits, each shorter than half a tick", duration(took)),
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
