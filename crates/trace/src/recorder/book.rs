//! What is written down while a program is followed.

use crate::record::{Call, Process, SCHEMA, Thread, Trace};

use super::clock::Clock;
use super::usage;

/// Calls that are kept. A VMM's start has hundreds; one that goes on for days is not to fill the memory.
const MOST_CALLS: usize = 400_000;

/// Of a call that takes longer it is kept what its thread had of the processors, in nanoseconds.
const LONG: u64 = 300_000;

/// Signals that are kept of a thread.
const MOST_SIGNALS: usize = 100;

/// The record, and the time it is in.
pub(super) struct Book {
    pub(super) clock: Clock,
    pub(super) trace: Trace,
    /// Whether nobody waits for it any more.
    pub(super) closed: bool,
}

impl Book {
    pub(super) fn new(clock: Clock, command: Vec<String>) -> Self {
        let trace = Trace { schema: SCHEMA.to_owned(), command, ..Trace::default() };
        Self { clock, trace, closed: false }
    }

    /// Writes down a call that begins now; says its number.
    pub(super) fn begin(&mut self, mut call: Call) -> Option<usize> {
        if self.closed {
            return None;
        }
        if self.trace.calls.len() == MOST_CALLS {
            self.trace.lost += 1;
            return None;
        }
        call.used = usage::used(call.tid);
        call.read = usage::read(call.tid);
        call.at = self.clock.now();
        self.trace.calls.push(call);
        Some(self.trace.calls.len() - 1)
    }

    /// The call has ended now.
    pub(super) fn end(&mut self, number: usize, result: i64) {
        let now = self.clock.now();
        if let Some(call) = self.trace.calls.get_mut(number) {
            call.took = Some(now.saturating_sub(call.at));
            call.result = Some(result);
            // Of a short one nobody asks.
            let used = call.took.filter(|took| *took >= LONG).and_then(|_| usage::used(call.tid));
            call.used = used.zip(call.used).map(|(after, before)| usage::between(before, after));
        }
    }

    /// Writes down that a thread is there; says its number.
    pub(super) fn thread(&mut self, tid: i32, pid: i32, parent: Option<i32>) -> usize {
        let at = self.clock.now();
        if !self.trace.processes.iter().any(|one| one.pid == pid && one.gone.is_none()) {
            self.trace.processes.push(Process { pid, parent, at, ..Process::default() });
        }
        self.trace.threads.push(Thread { tid, pid, at, ..Thread::default() });
        self.trace.threads.len() - 1
    }

    /// A thread gets a signal.
    pub(super) fn signal(&mut self, thread: usize, signal: i32) {
        let at = self.clock.now();
        let signals = &mut self.trace.threads[thread].signals;
        if signals.len() < MOST_SIGNALS {
            signals.push((at, signal));
        }
    }

    pub(super) fn process(&mut self, pid: i32) -> Option<&mut Process> {
        self.trace.processes.iter_mut().rev().find(|one| one.pid == pid)
    }

    /// Says something once.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.trace.notes.contains(&note) {
            self.trace.notes.push(note);
        }
    }

    /// Keeps no more, and what there is no longer.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.trace.calls = Vec::new();
        self.trace.samples = Vec::new();
    }
}
