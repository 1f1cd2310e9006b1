//! What is written down while a program is followed.

use crate::record::{Call, Process, SCHEMA, Thread, Trace, Used};

use super::accounts::{Accounts, completed, merged};
use super::clock::Clock;
use super::ledger::Ledger;
use super::sampler::{EXACT, Looked, Looking};
use super::usage::{self, Meters};
use crate::sys::ptrace::read_memory;

/// Calls that are kept. A VMM's start has hundreds; one that goes on for days is not to fill the memory.
const MOST_CALLS: usize = 400_000;

/// Of a call that takes longer it is kept what its thread had of the processors, in nanoseconds.
const LONG: u64 = 300_000;

/// The creation of a VM that takes longer has to be explained, in nanoseconds.
const LONG_CREATION: u64 = 1_000_000;

/// Signals that are kept of a thread.
const MOST_SIGNALS: usize = 100;

/// The record, and the time it is in.
pub(super) struct Book {
    pub(super) clock: Clock,
    pub(super) trace: Trace,
    /// Whether it is no longer wanted.
    pub(super) closed: bool,
    /// What tells what threads use, at their calls.
    meters: Meters,
    /// What calls have told of the threads' time on processors.
    accounts: Accounts,
    /// What events have told, where it is by these that a program is followed: then it is later than what is written down.
    pub(super) ledger: Option<Ledger>,
}

impl Book {
    pub(super) fn new(clock: Clock, command: Vec<String>) -> Self {
        let trace = Trace { schema: SCHEMA.to_owned(), command, ..Trace::default() };
        let (meters, accounts) = (Meters::default(), Accounts::new(EXACT));
        Self { clock, trace, closed: false, meters, accounts, ledger: None }
    }

    /// The time of what happens.
    pub(super) fn now(&self) -> u64 {
        self.ledger.as_ref().map_or_else(|| self.clock.now(), |ledger| ledger.at)
    }

    /// What a thread has had of the processors.
    pub(super) fn used(&mut self, tid: i32) -> Option<Used> {
        match &self.ledger {
            None => self.meters.used(tid),
            Some(ledger) => ledger.used(tid),
        }
    }

    /// A thread is gone.
    pub(super) fn gone(&mut self, tid: i32) {
        self.meters.forget(tid);
    }

    /// Bytes of memory that a process has.
    pub(super) fn resident(&self, pid: i32) -> Option<u64> {
        self.ledger.as_ref().map_or_else(|| usage::resident(pid), |ledger| ledger.resident(pid))
    }

    /// Reads memory of a program, as much as there is of `into`; says how much was read.
    pub(super) fn memory(&self, tid: i32, address: u64, into: &mut [u8]) -> usize {
        let read = read_memory(tid, address, into);
        if let Some(ledger) = &self.ledger {
            ledger.looked.set(Some(self.clock.now()));
        }
        read
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
        call.used = self.used(call.tid);
        self.account(call.tid, call.used);
        call.read = match &self.ledger {
            None => self.meters.read(call.tid),
            Some(ledger) => Some(ledger.read(call.tid)),
        };
        call.at = self.now();
        self.trace.calls.push(call);
        Some(self.trace.calls.len() - 1)
    }

    /// Writes down a call that was over before it was known what it is.
    pub(super) fn keep(&mut self, call: Call) {
        if self.closed || self.trace.calls.len() == MOST_CALLS {
            self.trace.lost += u64::from(!self.closed);
        } else {
            self.trace.calls.push(call);
        }
    }

    /// The call has ended now.
    pub(super) fn end(&mut self, number: usize, result: i64) {
        let now = self.now();
        let Some(call) = self.trace.calls.get(number) else { return };
        let took = now.saturating_sub(call.at);
        // A short one is never looked at.
        let tid = call.tid;
        let used = (took >= LONG).then(|| self.used(tid)).flatten();
        self.account(tid, used);
        let Some(call) = self.trace.calls.get(number) else { return };
        let used = used.zip(call.used).map(|(after, before)| usage::between(before, after));
        let call = &mut self.trace.calls[number];
        (call.took, call.result, call.used) = (Some(took), Some(result), used);
    }

    /// Counts the mappings of a process that has created a VM, where that took long and ran: to count takes long, too.
    pub(super) fn count_mappings(&mut self, number: usize) {
        let Some(call) = self.trace.calls.get_mut(number) else { return };
        let took =
            call.took.zip(call.used).map(|(took, used)| (took.saturating_sub(used.queued), used));
        let is_long = |(own, used): (u64, Used)| own >= LONG_CREATION && 2 * used.ran >= own;
        let is_it = call.name == "KVM_CREATE_VM" && took.is_some_and(is_long);
        if let Some(count) = is_it.then(|| usage::mappings(call.pid)).flatten() {
            call.arguments.insert("mappings".to_owned(), count);
        }
    }

    /// Writes down what a thread has had of the processors by now; events tell it by themselves.
    fn account(&mut self, tid: i32, used: Option<Used>) {
        if let (Some(used), None) = (used, &self.ledger) {
            self.accounts.add(tid, self.clock.now(), used);
        }
    }

    /// A thread begins to end.
    pub(super) fn ending(&mut self, tid: i32) {
        let used = if self.ledger.is_none() { self.meters.used(tid) } else { None };
        self.account(tid, used);
    }

    /// Writes down that a thread is there; says its number.
    pub(super) fn thread(&mut self, tid: i32, pid: i32, parent: Option<i32>) -> usize {
        let at = self.now();
        if !self.trace.processes.iter().any(|one| one.pid == pid && one.gone.is_none()) {
            self.trace.processes.push(Process { pid, parent, at, ..Process::default() });
        }
        self.trace.threads.push(Thread { tid, pid, at, ..Thread::default() });
        self.trace.threads.len() - 1
    }

    /// Writes down which thread made another.
    pub(super) fn made(&mut self, thread: usize, maker: i32) {
        self.trace.threads[thread].maker.get_or_insert(maker);
    }

    /// A thread runs a vCPU, once more or for the first time.
    pub(super) fn runs(&mut self, tid: i32) {
        if let Some(thread) = self.trace.threads.iter_mut().rev().find(|one| one.tid == tid) {
            thread.runs += 1;
        }
    }

    /// A thread gets a signal.
    pub(super) fn signal(&mut self, thread: usize, signal: i32) {
        let at = self.now();
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

    /// The record of what is over, with what was seen of waiting threads.
    ///
    /// It ends with the last process, or now, and not when the sampler has ended, too.
    pub(super) fn finish(mut self, looking: Looking) -> Trace {
        let gone = self.trace.processes.iter().map(|one| one.gone).max();
        let all_gone = self.trace.processes.iter().all(|one| one.gone.is_some());
        let gone = gone.flatten().filter(|_| all_gone);
        self.trace.span = gone.unwrap_or_else(|| self.clock.now());
        let Looked { samples, accounts, lost, marked, throttled } =
            looking.join().unwrap_or_default();
        (self.trace.samples, self.trace.marked) = (samples, marked);
        self.trace.throttled = throttled;
        self.trace.accounts = match &mut self.ledger {
            Some(ledger) => completed(&ledger.accounts.take(), &accounts, &self.trace.threads),
            None => merged(self.accounts.take(), accounts, EXACT),
        };
        self.trace.know_workers();
        self.trace.forget_inherited_calls();
        if lost > 0 {
            self.note(format!(
                "{lost} samples of the middle were not kept, for there were too many: what vCPUs waited in then may be missing"
            ));
        }
        if let Some(ledger) = &mut self.ledger {
            self.trace.wakes = ledger.take_woken();
        }
        // Some were held back after they had come, or were known for what they are later than they had begun.
        self.trace.calls.sort_by_key(|call| call.at);
        self.trace
    }

    /// Keeps no more, and what there is no longer.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.trace.calls = Vec::new();
        self.trace.samples = Vec::new();
    }
}
