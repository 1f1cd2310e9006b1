//! Between two calls to KVM the thread that sets the VM up reads: an image, a file, a snapshot. Or it waits for the process
//! at the other end of a pipe or a socket, from which it reads.

use mayfly_record::units::{bytes, duration};

use super::busy;
use super::evidence::Stretch;
use super::likely::likely;
use crate::record::{Call, Stall, Trace};
use crate::spent::Spent;
use crate::times::Accounts;

/// Less is no image, in bytes.
const LITTLE: u64 = 1 << 20;
/// To read a byte that is there takes no longer, in nanoseconds.
const SLOWEST: u64 = 5;
/// Where a thread sleeps until the other end of a pipe or a socket writes.
const WAITS_IN: [&str; 7] = [
    "pipe_read",
    "anon_pipe_read",
    "fifo_pipe_read",
    "unix_stream_*",
    "sk_wait_data",
    "tcp_recvmsg*",
    "inet_recvmsg",
];

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let Some(vmm) = trace.vmm() else { return Vec::new() };
    let entry = trace.first_entry();
    let setter = trace.first_to_kvm(vmm).map(|one| one.tid);
    let calls: Vec<&Call> = trace
        .calls
        .iter()
        .filter(|call| Some(call.tid) == setter && entry.is_none_or(|entry| call.at <= entry))
        .collect();
    let accounts = Accounts::of(trace);
    calls.windows(2).filter_map(|two| gap(trace, &accounts, two[0], two[1])).collect()
}

fn gap(trace: &Trace, accounts: &Accounts, before: &Call, after: &Call) -> Option<Stall> {
    let (from, to) = (before.end(), after.at);
    let took = to.checked_sub(from).filter(|took| *took >= trace.least())?;
    let read = after.read?.checked_sub(before.read?).filter(|read| *read >= LITTLE)?;
    let mut evidence = vec![format!("it read {} meanwhile", bytes(read))];
    let stretch = Stretch { trace, tid: before.tid, from, to };
    // Who reads sleeps in reading, or runs, and not for longer than it takes to copy as much: for the rest of the time it did
    // something else. What it waited for a processor says nothing of either.
    let unseen = Spent { unseen: took, ..Spent::default() };
    let spent = stretch.spent(accounts).unwrap_or(unseen);
    let own = took.saturating_sub(spent.queued);
    let reads = spent.file + (spent.ran + spent.unseen).min(read.saturating_mul(SLOWEST));
    // A look may miss the last tick of what ran.
    if own < trace.least() || 2 * own.saturating_sub(reads + trace.unsure()) >= own {
        return None;
    }
    evidence.extend(busy::also_queued(spent.queued, took));
    let slept = stretch.time_in(&WAITS_IN);
    let cause = if slept >= own / 2 {
        evidence.push(format!("it slept {} of {} for the writer", duration(slept), duration(took)));
        likely(
            "slow-input",
            "the program waits for the process that writes to the pipe or socket that it reads",
            "begin to write earlier, or read on a thread of its own while KVM is set up",
            evidence,
        )
    } else {
        likely(
            "image-loading",
            "the program reads the image of its guest",
            "map the file instead of reading it, or read it on a thread of its own while KVM is set up",
            evidence,
        )
    };
    Some(Stall {
        what: format!("between {} and {}", before.name, after.name),
        tid: before.tid,
        at: from,
        took,
        cause: Some(cause),
        ..Stall::default()
    })
}
