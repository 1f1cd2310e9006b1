//! What an experiment needs of the host, and what it changes there.

use std::time::Duration;

/// What a run needs. All of it is estimated, except what the run changes: memory within about a fifth, time within a factor
/// of two or three on a host that does nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of memory that are in use at one time.
    pub memory: u64,
    /// Bytes of address space that are mapped at one time.
    pub space: u64,
    /// What most of that is for, as in "... for a VM of 64 GiB".
    pub what_for: String,
    /// How long it takes.
    pub time: Duration,
    /// What it changes on the host while it runs, if anything: a line each, as in "changes ...".
    pub changes: Vec<String>,
}

impl Needs {
    /// What all of these take, one after the other.
    pub fn of_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, one| Self {
            memory: sum.memory.max(one.memory),
            space: sum.space.max(one.space),
            what_for: if one.memory > sum.memory { one.what_for.clone() } else { sum.what_for },
            time: sum.time + one.time,
            changes: [sum.changes, one.changes.clone()].concat(),
        })
    }
}

/// Bytes of address space of a machine with so many frames: what is in them, and its own books.
pub(crate) fn space_of(frames: usize) -> u64 {
    const BOOKS: u64 = 16;
    frames as u64 * (mayfly_platform::address::PAGE_SIZE + BOOKS)
}

/// Bytes of address space of so many threads on KVM: the stack of each, and what the kernel has mapped for it.
pub(crate) fn space_of_threads(count: u32) -> u64 {
    const STACK: u64 = 2 << 20;
    const BESIDE: u64 = 64 << 10;
    u64::from(count) * (STACK + BESIDE)
}
