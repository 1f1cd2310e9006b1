//! How a stretch of a thread's time was spent: on a processor, runnable, or asleep, and in what.
//!
//! What a thread had of the processors is told by its accounts. What it slept in is told by the looks at it: these are few,
//! so a sleep is shared among what was seen of it. Time of which no account tells is not called anything.

use std::collections::HashMap;

use crate::record::{Account, Sample, Trace};
use crate::spent::Spent;

/// What a thread sleeps in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It sleeps in nothing: it waits for a processor, and has not got it yet.
    Runnable,
    Fault,
    Lock,
    File,
    Other,
}

/// Functions of the kernel by which a sleep is known, the first that fits.
const FAULTS: [&str; 8] = [
    "handle_mm_fault",
    "exc_page_fault",
    "asm_exc_page_fault",
    "do_user_addr_fault",
    "do_page_fault",
    "do_mem_abort",
    "handle_userfault",
    "__get_user_pages",
];
const LOCKS: [&str; 10] = [
    "futex_*",
    "rwsem_down_*",
    "__mutex_lock*",
    "mutex_lock*",
    "down_read*",
    "down_write*",
    "percpu_down_*",
    "percpu_rwsem_*",
    "fcntl_setlk*",
    "locks_lock_*",
];
const FILES: [&str; 14] = [
    "vfs_*",
    "ksys_*",
    "filemap_*",
    "folio_wait_*",
    "io_schedule*",
    "blk_*",
    "ext4_*",
    "xfs_*",
    "btrfs_*",
    "jbd2_*",
    "do_sys_open*",
    "pipe_*",
    "anon_pipe_*",
    "unix_stream_*",
];
/// The same by the number of the system call.
const FILE_CALLS: [libc::c_long; 10] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_openat,
    libc::SYS_sendfile,
];
const LOCK_CALLS: [libc::c_long; 2] = [libc::SYS_futex, libc::SYS_flock];

/// The accounts of each thread.
pub(crate) struct Accounts {
    of: HashMap<i32, Vec<Account>>,
    /// Whether it was told what threads wait in: then one that is in the kernel, and waits in nothing, sleeps not.
    tells: bool,
}

impl Accounts {
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut of: HashMap<i32, Vec<Account>> = HashMap::new();
        for account in &trace.accounts {
            of.entry(account.tid).or_default().push(*account);
        }
        for all in of.values_mut() {
            all.sort_by_key(|account| account.at);
            *all = without_stale(all);
        }
        Self { of, tells: trace.samples.iter().any(|one| one.channel.is_some()) }
    }

    /// How a thread spent its time between two moments; `looks` are those at the thread that were around or between them.
    pub(crate) fn spent<'a>(
        &self,
        tid: i32,
        (from, to): (u64, u64),
        looks: impl Iterator<Item = &'a Sample>,
    ) -> Option<Spent> {
        let mut spent = self.used(tid, from, to)?;
        let slept = std::mem::take(&mut spent.slept);
        let mut seen = [
            (Kind::Runnable, 0u64),
            (Kind::Fault, 0),
            (Kind::Lock, 0),
            (Kind::File, 0),
            (Kind::Other, 0),
        ];
        for look in looks {
            let (begun, over) = (look.at.max(from), (look.at + look.took).min(to));
            // What it slept while it was seen there; a single look has no length.
            let there = self.used(tid, begun, over).map_or(0, |used| used.slept).max(1);
            let is_runnable = self.tells && look.channel.is_none() && !look.stack.is_empty();
            let kind = if is_runnable { Kind::Runnable } else { kind(look) };
            if let Some((_, time)) = seen.iter_mut().find(|(of, _)| *of == kind) {
                *time += there;
            }
        }
        let all: u64 = seen.iter().map(|(_, time)| time).sum();
        let mut left = slept;
        for (kind, time) in seen {
            let part = u128::from(slept) * u128::from(time) / u128::from(all.max(1));
            let part = (part as u64).min(left);
            match kind {
                Kind::Runnable => spent.queued += part,
                Kind::Fault => spent.fault = part,
                Kind::Lock => spent.lock = part,
                Kind::File => spent.file = part,
                Kind::Other => continue,
            }
            left -= part;
        }
        spent.slept = left;
        Some(spent)
    }

    /// The same without what it slept in; `None` of a thread without accounts.
    fn used(&self, tid: i32, from: u64, to: u64) -> Option<Spent> {
        let accounts = self.of.get(&tid)?;
        let mut spent = Spent::default();
        let first = accounts.partition_point(|one| one.at <= from).saturating_sub(1);
        for two in accounts[first..].windows(2) {
            let (before, after) = (two[0], two[1]);
            let (begun, over) = (before.at.max(from), after.at.min(to));
            if before.at >= to {
                break;
            }
            if over <= begun {
                continue;
            }
            let (time, whole) = (over - begun, after.at - before.at);
            let share = |grown: u64| {
                (u128::from(grown.min(whole)) * u128::from(time) / u128::from(whole)) as u64
            };
            let ran = share(after.ran.saturating_sub(before.ran));
            let queued = share(after.queued.saturating_sub(before.queued)).min(time - ran);
            spent.ran += ran;
            spent.queued += queued;
            spent.slept += time - ran - queued;
        }
        spent.unseen = to.saturating_sub(from) - spent.whole();
        Some(spent)
    }
}

/// Without the accounts that were told too early: the kernel counts the time of a thread that runs at its ticks alone, so a
/// look between two has too little of it, and the next one has more than there was time for.
fn without_stale(accounts: &[Account]) -> Vec<Account> {
    let mut kept: Vec<Account> = Vec::with_capacity(accounts.len());
    for one in accounts {
        let is_stale = |last: &Account| {
            let grown = one.ran.saturating_sub(last.ran) + one.queued.saturating_sub(last.queued);
            grown > one.at.saturating_sub(last.at)
        };
        while kept.len() > 1 && kept.last().is_some_and(is_stale) {
            kept.pop();
        }
        kept.push(*one);
    }
    kept
}

fn kind(look: &Sample) -> Kind {
    if look.is_in(&FAULTS) {
        Kind::Fault
    } else if look.is_in(&LOCKS) || look.is_in_call(&LOCK_CALLS) {
        Kind::Lock
    } else if look.is_in(&FILES) || look.is_in_call(&FILE_CALLS) {
        Kind::File
    } else {
        Kind::Other
    }
}

impl Trace {
    /// How a thread spent its time between two moments, where that was seen.
    pub(crate) fn spent(&self, tid: i32, from: u64, to: u64) -> Option<Spent> {
        let looks = self
            .samples
            .iter()
            .filter(|look| look.tid == tid && look.at <= to && look.at + look.took >= from);
        Accounts::of(self).spent(tid, (from, to), looks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It runs up to 20, sleeps up to 60, is runnable up to 70, and runs up to 100.
    fn trace(samples: Vec<Sample>) -> Trace {
        let account = |at, ran, queued| Account { tid: 7, at, ran, queued };
        let accounts =
            vec![account(0, 0, 0), account(20, 20, 0), account(60, 20, 0), account(70, 20, 10)];
        let accounts = [accounts, vec![account(100, 50, 10)]].concat();
        Trace { samples, accounts, ..Trace::default() }
    }

    fn look(at: u64, took: u64, function: &str) -> Sample {
        Sample { tid: 7, at, took, seen: 2, stack: vec![function.into()], ..Sample::default() }
    }

    #[test]
    fn time_is_on_a_processor_runnable_or_asleep_and_all_of_it_is_one_of_them() {
        let spent = trace(vec![]).spent(7, 10, 80).unwrap();
        assert_eq!(spent, Spent { ran: 20, queued: 10, slept: 40, ..Spent::default() });
        assert_eq!(spent.to_string(), "runnable 10 ns, asleep 40 ns");
        let late = trace(vec![]).spent(7, 90, 130).unwrap();
        assert_eq!(late, Spent { ran: 10, unseen: 30, ..Spent::default() });
        assert_eq!(trace(vec![]).spent(8, 0, 10), None);
    }

    #[test]
    fn a_sleep_is_shared_among_what_the_thread_was_seen_in() {
        let looks = vec![
            // It was seen there when it ran, too: that was no sleep.
            look(0, 30, "handle_mm_fault"),
            look(31, 10, "futex_do_wait"),
            look(42, 10, "filemap_fault"),
            look(53, 7, "poll_schedule_timeout"),
        ];
        let spent = trace(looks).spent(7, 0, 100).unwrap();
        let Spent { fault, lock, file, slept, .. } = spent;
        assert_eq!((spent.ran, spent.queued), (50, 10));
        assert!([fault, lock, file].iter().all(|one| (10..=11).contains(one)), "{spent:?}");
        assert_eq!((slept, spent.whole()), (40 - fault - lock - file, 100));
    }

    #[test]
    fn a_thread_that_waits_in_nothing_when_it_is_looked_at_could_run() {
        // The kernel counts such a wait when it is over.
        let mut looks = vec![look(21, 38, "vhost_task_fn")];
        assert_eq!(trace(looks.clone()).spent(7, 20, 60).unwrap().queued, 0);
        looks.push(Sample { tid: 9, channel: Some("do_sys_poll".into()), ..Sample::default() });
        let spent = trace(looks).spent(7, 20, 60).unwrap();
        assert_eq!((spent.queued, spent.asleep()), (40, 0));
    }

    #[test]
    fn a_thread_whose_time_is_counted_at_ticks_alone_ran_between_them() {
        let account = |at, ran| Account { tid: 7, at, ran, queued: 0 };
        let accounts = [(0, 0), (10, 0), (20, 0), (30, 0), (40, 40), (50, 40), (80, 80)]
            .map(|(a, b)| account(a, b));
        let trace = Trace { accounts: accounts.to_vec(), ..Trace::default() };
        assert_eq!(trace.spent(7, 0, 80), Some(Spent { ran: 80, ..Spent::default() }));
    }

    #[test]
    fn a_call_tells_what_it_slept_in_where_stacks_are_not_told() {
        let call = |number: libc::c_long| {
            kind(&Sample { call: Some((number as u64, [0; 4])), ..Sample::default() })
        };
        assert_eq!(call(libc::SYS_pread64), Kind::File);
        assert_eq!(call(libc::SYS_futex), Kind::Lock);
        assert_eq!(call(libc::SYS_ppoll), Kind::Other);
    }
}
