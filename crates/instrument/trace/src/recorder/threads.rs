//! The threads that are followed.

use std::collections::{BTreeMap, HashMap};

use super::descriptors::Table;

/// A thread that is followed.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) pid: i32,
    pub(super) table: Table,
    /// Which call of the record it is in, if its end is waited for.
    pub(super) inside: Option<Inside>,
    /// Which thread of the record it is.
    pub(super) number: usize,
    /// Whether each of its system calls stops, because it may run a vCPU for the first time.
    pub(super) looked_for: bool,
    /// Whether it has run a vCPU.
    pub(super) has_run: bool,
}

/// A call that a thread is in.
#[derive(Debug)]
pub(super) struct Inside {
    /// Its number in the record; none of those that are not kept.
    pub(super) call: Option<usize>,
    /// What is done when it has ended.
    pub(super) then: Then,
    /// When the memory that it points to was read, where that may have been too late.
    pub(super) looked: Option<u64>,
}

/// What a call's success means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// What it returns is a descriptor of `/dev/kvm`, if it is open.
    Opened,
    /// What it returns may be one: its use will tell. When it began.
    MayBeKvm(u64),
    /// A call of KVM's, of which what it returns may be a descriptor.
    Kvm,
    /// What it returns is the same as this descriptor.
    Duplicated(i32),
    /// Descriptors are closed, from the one to the other.
    Closed(i32, i32),
    /// A vCPU's first run.
    Ran,
    /// It is refused where a process is followed already.
    Traced,
}

/// All that are followed.
#[derive(Default)]
pub(super) struct Followers {
    pub(super) threads: HashMap<i32, Followed>,
    /// Of each process, how many threads are followed.
    pub(super) processes: BTreeMap<i32, usize>,
}

impl Followed {
    /// One of which nothing was seen yet.
    pub(super) fn at_first(pid: i32, table: Table, number: usize) -> Self {
        Self { pid, table, inside: None, number, looked_for: false, has_run: false }
    }
}

impl Followers {
    pub(super) fn insert(&mut self, tid: i32, thread: Followed) {
        *self.processes.entry(thread.pid).or_default() += 1;
        self.threads.insert(tid, thread);
    }

    /// Forgets a thread; says what it was, and whether its process has no other.
    pub(super) fn remove(&mut self, tid: i32) -> Option<(Followed, bool)> {
        let thread = self.threads.remove(&tid)?;
        let left = self.processes.entry(thread.pid).or_default();
        *left = left.saturating_sub(1);
        let last = *left == 0;
        if last {
            self.processes.remove(&thread.pid);
        }
        Some((thread, last))
    }

    /// A thread and the table of each process, to be held against one another.
    pub(super) fn tables(&self) -> Vec<(i32, Table)> {
        let mut all: Vec<_> = self.threads.iter().map(|(tid, one)| (*tid, one.table)).collect();
        all.sort_unstable_by_key(|(tid, table)| (*table, *tid));
        all.dedup_by_key(|(_, table)| *table);
        all
    }
}
