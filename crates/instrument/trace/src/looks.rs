//! What a look at a thread says: which functions of the kernel it was in, and which call.

use libc::c_long;

use crate::record::Sample;

/// While something happens, threads are looked at so often, in nanoseconds, and a bit: what was there for longer was seen, and
/// when it ended is known as exactly.
pub(crate) const SLACK: u64 = 3_000_000;

impl Sample {
    /// The functions of the kernel that the thread was in: those of its stack, and the one in which it waited.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &String> {
        self.stack.iter().chain(&self.channel)
    }

    /// Whether the thread was in one of `functions`; a name that ends in an asterisk stands for all that begin like it.
    pub(crate) fn is_in(&self, functions: &[&str]) -> bool {
        self.functions().any(|name| is_meant(name, functions))
    }

    /// Whether the thread was in one of these system calls.
    pub(crate) fn is_in_call(&self, calls: &[c_long]) -> bool {
        self.call.is_some_and(|(number, _)| is_one(number, calls))
    }
}

/// Whether a function of the kernel is one of `functions`; an asterisk at the end stands for any ending.
pub(crate) fn is_meant(name: &str, functions: &[&str]) -> bool {
    functions.iter().any(|meant| match meant.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *meant,
    })
}

/// Whether the number of a system call is one of `calls`.
pub(crate) fn is_one(number: u64, calls: &[c_long]) -> bool {
    calls.iter().any(|one| *one as u64 == number)
}
