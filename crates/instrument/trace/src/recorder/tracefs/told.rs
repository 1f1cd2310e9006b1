//! What the follower makes of events.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::event::Event;
use crate::calls::{ARCHITECTURES, KVM_RUN};
use crate::looks::is_one;
use crate::record::{Call, End};
use crate::recorder::follow::Follower;
use crate::recorder::proc::name_of;
use crate::recorder::rights::is_32_bit;
use crate::recorder::threads::Followed;

/// A process of its own, or a thread of one; descriptors of its own, or another's (`clone(2)`).
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;
const CLONE_FILES: u64 = libc::CLONE_FILES as u64;
/// Followed by no tracer. A thread that the kernel starts in a program's process is made with it: that which KVM starts for
/// huge pages (`vhost_task_create`, since Linux 6.14), and those of `io_uring`. KVM's may be the last that holds the process's
/// memory, and so its VM.
const CLONE_UNTRACED: u64 = libc::CLONE_UNTRACED as u64;

/// Signals that end no process by themselves.
const HARMLESS: [i32; 8] = [
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGURG,
    libc::SIGWINCH,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// What is known beside what the follower knows.
#[derive(Default)]
pub(super) struct Told {
    /// In which call a thread is.
    inside: HashMap<i32, u64>,
    /// Of each thread, its last run of a vCPU but the first.
    runs: HashMap<i32, Call>,
    /// How each process said that it would end, or was told to.
    ends: HashMap<i32, End>,
    /// Whether entries of vCPUs are needed no more.
    pub(super) all_entered: bool,
}

impl Told {
    /// Tells the follower of an event at this time of the trace.
    pub(super) fn tell(&mut self, follower: &mut Follower, at: u64, event: Event) {
        if let Some(ledger) = &mut follower.book.ledger {
            ledger.at = at;
        }
        match event {
            Event::Enters { tid, number, arguments } => {
                self.enters(follower, tid, number, &arguments);
            }
            Event::Leaves { tid, number, result } => self.leaves(follower, tid, number, result),
            Event::Makes { maker, tid, flags } => makes(follower, maker, tid, flags),
            Event::Executes { tid, former, program } => {
                follower.ensure(former, None);
                let shown = fs::read_link(format!("/proc/{tid}/exe"));
                let program = shown.unwrap_or_else(|_| PathBuf::from(program));
                self.inside.remove(&tid);
                becomes(follower, tid, former);
                follower.has_executed(tid, former, &program);
                note_32_bit(follower, &program);
            }
            Event::Ends { tid } => {
                self.inside.remove(&tid);
                follower.ending(tid);
                if let Some(ledger) = &mut follower.book.ledger {
                    ledger.ends(tid);
                }
            }
            Event::Signal { tid, signal, default } => {
                if let Some(thread) = follower.followers.threads.get(&tid) {
                    let (number, pid) = (thread.number, thread.pid);
                    follower.book.signal(number, signal);
                    let is_code = matches!(self.ends.get(&pid), Some(End::Code(_)));
                    if default && !is_code && !HARMLESS.contains(&signal) {
                        self.ends.insert(pid, End::Signal(signal));
                    }
                }
            }
            Event::Switches { from, goes_on, gone, to } => {
                if let Some(ledger) = &mut follower.book.ledger {
                    let threads = &follower.followers.threads;
                    ledger.switches(from, goes_on, to, |tid| threads.contains_key(&tid));
                }
                if gone && follower.followers.threads.contains_key(&from) {
                    self.gone(follower, from, at);
                }
            }
            Event::Wakes { tid, by } => {
                let Some(thread) = follower.followers.threads.get(&tid) else { return };
                let is_worker = follower.book.trace.threads[thread.number].is_worker();
                if let Some(ledger) = &mut follower.book.ledger {
                    if is_worker {
                        ledger.has_waited(tid);
                    }
                    ledger.wakes(tid, by);
                }
            }
            Event::Guest { tid } => self.entered(follower, tid, at),
        }
    }

    /// A thread is gone.
    pub(super) fn gone(&mut self, follower: &mut Follower, tid: i32, at: u64) {
        if let Some(ledger) = &mut follower.book.ledger {
            ledger.at = at;
            ledger.forget(tid);
        }
        self.inside.remove(&tid);
        if let Some(run) = self.runs.remove(&tid) {
            follower.book.keep(run);
        }
        follower.gone(tid, at);
    }

    /// All that is kept until the end.
    pub(super) fn finish(&mut self, follower: &mut Follower) {
        for (_, run) in self.runs.drain() {
            follower.book.keep(run);
        }
        let now = follower.book.clock.now();
        let Some(ledger) = &mut follower.book.ledger else { return };
        ledger.at = now.max(ledger.at);
        for tid in follower.followers.threads.keys() {
            ledger.ends(*tid);
        }
    }

    /// How a process has ended, as far as that was seen.
    pub(super) fn end(&self, pid: i32) -> Option<End> {
        self.ends.get(&pid).copied()
    }

    fn enters(&mut self, follower: &mut Follower, tid: i32, number: u64, arguments: &[u64; 6]) {
        follower.ensure(tid, None);
        if let Some(ledger) = &mut follower.book.ledger {
            ledger.runs(tid);
        }
        let Some(thread) = follower.followers.threads.get_mut(&tid) else { return };
        // Its end was lost, if it is in one still.
        thread.inside = None;
        let (pid, has_run) = (thread.pid, thread.has_run);
        self.inside.insert(tid, number);
        let is = |call: libc::c_long| call as u64 == number;
        if is(libc::SYS_exit_group) || (is(libc::SYS_exit) && tid == pid) {
            self.ends.insert(pid, End::Code(arguments[0] as i32 & 0xFF));
        } else if is(libc::SYS_ioctl) && arguments[1] & 0xFFFF_FFFF == KVM_RUN {
            follower.book.runs(tid);
            if has_run {
                self.runs_again(follower, tid, arguments[0] as i32);
            } else {
                follower.may_run(tid, ARCHITECTURES[0].audit, number, arguments);
            }
        } else {
            follower.enters(tid, ARCHITECTURES[0].audit, number, arguments);
        }
    }

    fn leaves(&mut self, follower: &mut Follower, tid: i32, number: u64, result: i64) {
        let reads = [libc::SYS_read, libc::SYS_pread64, libc::SYS_readv, libc::SYS_preadv];
        if is_one(number, &reads) {
            if let Some(ledger) = &mut follower.book.ledger {
                ledger.reads(tid, u64::try_from(result).unwrap_or(0));
            }
            return;
        }
        // Filters leave out beginnings that ends are told of.
        if self.inside.remove(&tid) != Some(number) {
            return;
        }
        if let Some(run) = self.runs.get_mut(&tid)
            && run.took.is_none()
        {
            run.took = Some(follower.book.now().saturating_sub(run.at));
            run.result = Some(result);
            return;
        }
        follower.leaves(tid, result);
    }

    /// Of all runs but a thread's first one, the last is kept.
    fn runs_again(&mut self, follower: &Follower, tid: i32, fd: i32) {
        let Some(thread) = follower.followers.threads.get(&tid) else { return };
        let on = follower.descriptors.known(thread.table, fd).cloned();
        let (pid, at, name) = (thread.pid, follower.book.now(), "KVM_RUN".to_owned());
        let run = Call { tid, pid, at, name, fd: Some(fd), on, ..Call::default() };
        self.runs.insert(tid, run);
    }

    /// A vCPU is entered; how long after its first run has begun is kept.
    fn entered(&mut self, follower: &mut Follower, tid: i32, at: u64) {
        let Some(thread) = follower.followers.threads.get(&tid) else { return };
        let first = thread.inside.as_ref().filter(|_| !thread.has_run);
        if let Some(call) = first.and_then(|inside| inside.call) {
            let call = &mut follower.book.trace.calls[call];
            if call.name == "KVM_RUN" {
                let after = at.saturating_sub(call.at);
                call.arguments.entry("entered".to_owned()).or_insert(after);
            }
        }
        self.all_entered = follower.had_vcpus && follower.not_run.is_empty();
    }
}

fn makes(follower: &mut Follower, maker: i32, tid: i32, flags: u64) {
    if flags & CLONE_UNTRACED != 0 && flags & CLONE_THREAD == 0 {
        return;
    }
    follower.ensure(maker, None);
    let Some(of) = follower.followers.threads.get(&maker) else { return };
    let (maker_pid, of_table) = (of.pid, of.table);
    let pid = if flags & CLONE_THREAD == 0 { tid } else { maker_pid };
    let table =
        if flags & CLONE_FILES == 0 { follower.descriptors.copied(of_table) } else { of_table };
    let number = follower.book.thread(tid, pid, (pid != follower.root).then_some(maker_pid));
    follower.book.made(number, maker);
    if flags & CLONE_UNTRACED != 0 {
        follower.book.trace.threads[number].works_as(name_of(tid));
    }
    follower.begin(tid, Followed::at_first(pid, table, number));
}

/// Another thread than the first of a process executes, and is the first from now on.
fn becomes(follower: &mut Follower, tid: i32, former: i32) {
    if tid == former || follower.followers.threads.contains_key(&tid) {
        return;
    }
    let Some(thread) = follower.followers.threads.get(&former) else { return };
    let (pid, table) = (thread.pid, thread.table);
    let number = follower.book.thread(tid, pid, None);
    follower.begin(tid, Followed::at_first(pid, table, number));
}

/// Calls of 32-bit programs have no events.
fn note_32_bit(follower: &mut Follower, program: &Path) {
    if is_32_bit(program) {
        follower.book.note(
            "the program executes a 32-bit program, whose calls tracepoints do not show: use --recorder ptrace",
        );
    }
}
