//! The table that is printed.

use core::fmt;

use crate::console::line;
use crate::heap;
use crate::platform::Machine;
use crate::step::{self, Counts, Whose};

/// Prints what is counted, a row each, and remembers whether all bounds hold.
pub(crate) struct Table<'a> {
    /// The row of which every instruction is shown.
    shown: &'a str,
    all_hold: bool,
}

/// What a step may take, where that is bounded.
#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) instructions: Option<u64>,
    pub(crate) barriers: Option<u64>,
    pub(crate) stack: Option<u64>,
    pub(crate) invalidations: Option<u64>,
}

/// Of instructions alone.
pub(crate) const fn at_most(instructions: u64) -> Limits {
    Limits { instructions: Some(instructions), barriers: None, stack: None, invalidations: None }
}

pub(crate) const UNBOUNDED: Limits =
    Limits { instructions: None, barriers: None, stack: None, invalidations: None };

/// A bound, or none.
struct Bound(Option<u64>);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bound) => bound.fmt(f),
            None => "".fmt(f),
        }
    }
}

impl<'a> Table<'a> {
    pub(crate) fn new(shown: &'a str) -> Self {
        line(format_args!(
            "{:42} {:>7} {:>7} {:>8} {:>6} | {:>9} {:>8} {:>7} {:>6} | {:>12} {:>6} {:>6} {:>7}",
            "instructions of",
            "core",
            "bound",
            "barriers",
            "stack",
            "allocator",
            "platform",
            "resolve",
            "guest",
            "bytes/blocks",
            "frames",
            "TLBIs",
            "cleaned",
        ));
        Self { shown, all_hold: true }
    }

    /// Runs `work`, counts it, and adds its row.
    pub(crate) fn row<T>(
        &mut self,
        name: &str,
        limits: Limits,
        machine: &Machine,
        work: impl FnOnce() -> T,
    ) -> T {
        let mut result = None;
        self.counted(name, limits, machine, || {
            let (value, counts) = step::count(work);
            result = Some(value);
            counts
        });
        result.expect("was run")
    }

    /// Adds the row of `work`, which counts itself.
    pub(crate) fn counted(
        &mut self,
        name: &str,
        limits: Limits,
        machine: &Machine,
        work: impl FnOnce() -> Counts,
    ) {
        let (blocks, bytes) = heap::asked();
        let (invalidations, maintained) = (machine.invalidations(), machine.maintained());
        let frames = machine.frames();
        let counts = work();
        let asked = heap::asked();
        let (blocks, bytes) = (asked.0 - blocks, asked.1 - bytes);
        let invalidations = machine.invalidations() - invalidations;
        let maintained = machine.maintained() - maintained;
        let frames = machine.frames() - frames;
        let core = counts.of(Whose::Core);
        let holds = |limit: Option<u64>, value| limit.is_none_or(|limit| value <= limit);
        let all = holds(limits.instructions, core)
            && holds(limits.barriers, counts.barriers)
            && holds(limits.stack, counts.stack)
            && holds(limits.invalidations, invalidations);
        self.all_hold &= all;
        let bound = Bound(limits.instructions);
        line(format_args!(
            "{name:42} {core:7} {bound:>7} {:8} {:6} | {:9} {:8} {:7} {:6} | {bytes:>9}/{blocks:<2} {frames:6} {invalidations:6} \
             {maintained:7}{}",
            counts.barriers,
            counts.stack,
            counts.of(Whose::Allocator),
            counts.of(Whose::Platform),
            counts.of(Whose::Memory),
            counts.of(Whose::Device) + counts.of(Whose::Guest),
            if all { "" } else { "  MISS" },
        ));
        if name.trim_start() == self.shown {
            step::visits().for_each(|(at, times)| line(format_args!("{at:#x} {times}")));
        }
    }

    pub(crate) fn all_hold(&self) -> bool {
        self.all_hold
    }
}
