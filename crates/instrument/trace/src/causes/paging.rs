//! A guest's first accesses to its memory wait one by one: for a file that the memory is mapped from, as a restored VM's is, or
//! for the userfaultfd handler. Each such wait is short, and their sum is not.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_record::units::duration;

use super::likely::likely;
use super::userfault;
use crate::life::runs_vcpu;
use crate::looks::SLACK;
use crate::path::{Wait, sums};
use crate::record::{Cause, Sample, Stall, Trace};
use crate::times::Accounts;

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
    let long: BTreeSet<(i32, u64)> = userfault::waits(trace).map(|one| (one.tid, one.at)).collect();
    let mut found = Vec::new();
    for looks in of.values() {
        for (functions, cause) in causes {
            // The handler's long ones have a cause of their own.
            let has_own =
                |look: &Sample| *functions == OF_HANDLERS && long.contains(&(look.tid, look.at));
            let waits = waits(&accounts, looks, functions, has_own);
            let (each, short): (Vec<Wait>, Vec<Wait>) =
                waits.into_iter().partition(|one| one.slept / one.times >= trace.least());
            let of_files = each.iter().filter(|_| *functions == OF_FILES);
            found.extend(of_files.map(|one| stall("a vCPU's fault", *one, cause)));
            let short = sums(trace, short.into_iter().map(|one| ((), one)), |_| false);
            let all = "faults of the guest's, all together";
            found.extend(short.into_iter().map(|one| stall(all, one, cause)));
        }
    }
    found
}

/// The waits of a thread in these functions, while it ran a vCPU, by the looks that found it there; but for those that have a
/// cause of their own.
fn waits(
    accounts: &Accounts,
    looks: &[&Sample],
    functions: &[&str],
    has_own: impl Fn(&Sample) -> bool,
) -> Vec<Wait> {
    let wait = |(number, look): (usize, &&Sample)| {
        // One that waits in nothing runs, and its stack may be an older one.
        let is_there = look.channel.is_some() && look.is_in(functions) && runs_vcpu(look);
        let last = look.at + look.took;
        let until = looks.get(number + 1).map_or(last, |next| next.at).min(last + SLACK);
        let slept = accounts.spent(look.tid, (look.at, until), [].into_iter());
        let slept = slept.map_or(0, |spent| spent.asleep());
        // One that got a processor meanwhile has waited several times.
        let times = look.turns + 1;
        let once = Wait::once(look.tid, (look.at, until), None);
        (is_there && !has_own(look)).then_some(Wait { times, slept, ..once })
    };
    looks.iter().enumerate().filter_map(wait).collect()
}

fn stall(what: &str, waits: Wait, cause: OfWaits) -> Stall {
    Stall {
        what: what.to_owned(),
        tid: waits.tid,
        at: waits.from,
        took: waits.slept,
        cause: Some(cause(waits.times, waits.slept)),
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
