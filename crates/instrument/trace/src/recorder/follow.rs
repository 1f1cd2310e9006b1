//! Traces a program, its threads and its children, from stop to stop.
//!
//! With a filter, a thread stops twice at each call that is recorded: at its beginning and at its end. `KVM_RUN` is
//! not among these calls, but the first one is needed. So a thread that may be about to run a vCPU stops at all its
//! calls: a new thread while there is a VM, or a thread that sets up a vCPU that has not run; but not who made the VM, where
//! a thread made for the vCPU made that. It does so until it has run a vCPU, or until every vCPU has run. Without a filter, all threads stop at all calls, and the same calls are
//! recorded.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::book::Book;
use super::descriptors::{Descriptors, Table};
use super::proc::{name_of, process_of, untraced};
use super::sampler::Watched;
use super::threads::{Followed, Followers};
use crate::calls::runs_vcpu;
use crate::record::{Call, End, Object};
use crate::sys::ptrace::{self, At, Change, Resume, Shared};
use crate::sys::signals;

/// A call to be held back before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Its name.
    pub name: String,
    /// Which of its name, from 0 on, in the order of beginning.
    pub nth: usize,
    /// How long, in nanoseconds.
    pub time: u64,
}

/// How often the follower checks whether the trace is to end.
const IDLE: Duration = Duration::from_millis(20);

/// So long are threads waited for that are to be let go, in nanoseconds. One that waits for its `vfork`ed child, or in an
/// uninterruptible sleep, may never stop.
const PATIENCE: u64 = 1_000_000_000;

/// The follower: the part of the guardian that handles stops.
pub(super) struct Follower {
    pub(super) book: Book,
    pub(super) followers: Followers,
    pub(super) descriptors: Descriptors,
    pub(super) watched: Arc<Watched>,
    /// Whether there is a filter.
    pub(super) filtered: bool,
    /// The program.
    pub(super) root: i32,
    /// vCPUs that there are, and have not run; which thread made each.
    pub(super) not_run: BTreeMap<(usize, u64), i32>,
    pub(super) had_vcpus: bool,
    /// Which thread made each VM.
    pub(super) vm_makers: HashMap<usize, i32>,
    /// Descriptors that may be `/dev/kvm`, by how they were opened.
    pub(super) opened: BTreeMap<(Table, i32), Call>,
    /// Where `kvm_run` of which vCPU is mapped, by process and address.
    pub(super) runs: BTreeMap<(i32, u64), Object>,
    /// Threads that have stopped before it was told that they were made.
    pub(super) unannounced: HashSet<i32>,
    pub(super) delay: Option<Delay>,
    /// How many of the delayed call's name have begun.
    pub(super) met: usize,
    /// Threads that are held back, until when.
    pub(super) held: Vec<(u64, i32)>,
    /// Says whether the trace is to end; none for a program that is traced to its end.
    pub(super) leaves: Option<Box<dyn Fn() -> bool>>,
    /// Since when the threads are let go, each at its next stop.
    leaving: Option<u64>,
    /// Called when a program has been executed for the first time; says whether there is a filter.
    pub(super) executed: Option<Box<dyn FnOnce() -> bool>>,
}

impl Follower {
    pub(super) fn new(book: Book, watched: Arc<Watched>, root: i32, delay: Option<Delay>) -> Self {
        Self {
            book,
            watched,
            root,
            delay,
            followers: Followers::default(),
            descriptors: Descriptors::default(),
            filtered: true,
            not_run: BTreeMap::new(),
            had_vcpus: false,
            vm_makers: HashMap::new(),
            opened: BTreeMap::new(),
            runs: BTreeMap::new(),
            unannounced: HashSet::new(),
            met: 0,
            held: Vec::new(),
            leaves: None,
            leaving: None,
            executed: None,
        }
    }

    /// Follows until nothing is left to be followed, or nothing but threads that do not stop to be let go: the kernel lets
    /// these go when this process ends.
    pub(super) fn run(&mut self) -> io::Result<()> {
        loop {
            self.leave_if_wanted();
            if self.leaving.is_some_and(|since| self.book.now() - since > PATIENCE) {
                return Ok(());
            }
            let changed = match ptrace::wait(self.held.is_empty() && self.leaves.is_none()) {
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                changed => changed?,
            };
            let began = self.book.now();
            match changed {
                Some((tid, Change::Ended(status))) => self.ended(tid, status),
                Some((tid, Change::Stopped { signal, event })) => {
                    self.stopped(tid, signal, event);
                    self.book.trace.stops.count += 1;
                    self.book.trace.stops.handling += self.book.now().saturating_sub(began);
                }
                None => self.wait_for_held(),
            }
            self.watched.happens(began);
            if !self.book.closed && self.watched.abandoned.load(Ordering::Acquire) {
                self.book.close();
            }
        }
    }

    fn stopped(&mut self, tid: i32, signal: i32, event: i32) {
        if self.leaving.is_some() {
            let is_signal = event == 0 && signal != libc::SIGTRAP | 0x80;
            let _ = ptrace::detach(tid, if is_signal { signal } else { 0 });
            self.followers.remove(tid);
            return;
        }
        if !self.followers.threads.contains_key(&tid) {
            self.ensure(tid, None);
            self.unannounced.insert(tid);
        }
        match event {
            0 if signal == libc::SIGTRAP | 0x80 => return self.go_on_from_call(tid),
            0 => {
                if let Some(number) = self.followers.threads.get(&tid).map(|one| one.number) {
                    self.book.signal(number, signal);
                }
                return self.resume_with(tid, signal);
            }
            libc::PTRACE_EVENT_SECCOMP => return self.go_on_from_call(tid),
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                // It may have been seen before this was told, and may even be gone by now.
                if let Ok(new) = ptrace::event_message(tid)
                    && !self.unannounced.remove(&(new as i32))
                {
                    self.ensure(new as i32, Some(tid));
                }
            }
            libc::PTRACE_EVENT_EXEC => self.execed(tid),
            libc::PTRACE_EVENT_EXIT => self.ending(tid),
            libc::PTRACE_EVENT_STOP => {
                let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
                if stops.contains(&signal) {
                    let _ = ptrace::resume(tid, Resume::Listen, 0);
                    return;
                }
            }
            _ => {}
        }
        self.resume_with(tid, 0);
    }

    fn go_on_from_call(&mut self, tid: i32) {
        if self.at_system_call(tid) {
            self.resume_with(tid, 0);
        } else {
            ptrace::keep(tid);
        }
    }

    /// A thread that is gone meanwhile cannot go on, and that is all right.
    pub(super) fn resume_with(&mut self, tid: i32, signal: i32) {
        let _ = ptrace::resume(tid, self.way_on(tid), signal);
    }

    fn way_on(&mut self, tid: i32) -> Resume {
        let settled = self.had_vcpus && self.not_run.is_empty();
        let Some(thread) = self.followers.threads.get_mut(&tid) else { return Resume::Continue };
        thread.looked_for &= !settled && !thread.has_run;
        let closely = thread.looked_for || thread.inside.is_some();
        if !self.filtered || (closely && !self.book.closed) {
            Resume::ToSystemCall
        } else {
            Resume::Continue
        }
    }

    /// Says whether the thread goes on now; else it is held back.
    fn at_system_call(&mut self, tid: i32) -> bool {
        if self.book.closed {
            return true;
        }
        match ptrace::system_call(tid) {
            Ok(At::Filtered { arch, number, arguments }) => {
                self.enters(tid, arch, number, &arguments)
            }
            Ok(At::Entry { arch, number, arguments }) => {
                if self.filtered {
                    self.may_run(tid, arch, number, &arguments);
                    return true;
                }
                if runs_vcpu(arch, number, &arguments) {
                    self.book.runs(tid);
                }
                self.may_run(tid, arch, number, &arguments);
                self.enters(tid, arch, number, &arguments)
            }
            Ok(At::Exit(result)) => {
                self.leaves(tid, result);
                true
            }
            _ => true,
        }
    }

    /// Stops every thread, so that it can be released, when the trace is to end.
    fn leave_if_wanted(&mut self) {
        if self.leaving.is_some() || !self.leaves.as_ref().is_some_and(|leaves| leaves()) {
            return;
        }
        self.leaving = Some(self.book.now());
        for tid in self.followers.threads.keys() {
            let _ = ptrace::interrupt(*tid);
        }
    }

    fn wait_for_held(&mut self) {
        let now = self.book.now();
        let (due, held) = self.held.iter().partition::<Vec<_>, _>(|(until, _)| *until <= now);
        self.held = held;
        for (_, tid) in &due {
            self.restart_clock(*tid);
            self.resume_with(*tid, 0);
        }
        if due.is_empty() {
            let next = self.held.iter().map(|(until, _)| Duration::from_nanos(*until - now)).min();
            signals::wait(&[libc::SIGCHLD], next.unwrap_or(IDLE).min(IDLE));
        }
    }

    /// The call that a thread was held back from begins now.
    fn restart_clock(&mut self, tid: i32) {
        let inside = self.followers.threads.get(&tid).and_then(|thread| thread.inside.as_ref());
        if let Some(call) = inside.and_then(|inside| inside.call) {
            let (now, used) = (self.book.now(), self.book.used(tid));
            let call = &mut self.book.trace.calls[call];
            (call.at, call.used) = (now, used);
        }
    }

    /// Sees to it that a thread is known. `maker` is the one that made it, where that was told.
    pub(super) fn ensure(&mut self, tid: i32, maker: Option<i32>) {
        if let Some(thread) = self.followers.threads.get(&tid) {
            maker.inspect(|maker| self.book.made(thread.number, *maker));
            return;
        }
        let told = maker;
        let Some((pid, parent)) = process_of(tid) else { return };
        let maker = maker.unwrap_or(parent);
        let sibling = self.followers.threads.values().find(|one| one.pid == pid);
        let table = match (sibling, self.followers.threads.get(&maker)) {
            (Some(sibling), _) => sibling.table,
            (None, Some(of)) if ptrace::share(tid, maker, Shared::Table) == Some(true) => of.table,
            (None, Some(of)) => self.descriptors.copied(of.table),
            (None, None) => self.descriptors.empty(),
        };
        let number = self.book.thread(tid, pid, (pid != self.root).then_some(parent));
        told.inspect(|maker| self.book.made(number, *maker));
        let last = i32::MAX;
        let looked_for = self.descriptors.within(table, 0, last).iter().any(|fd| {
            matches!(
                self.descriptors.known(table, *fd),
                Some(Object::Vm { .. } | Object::Vcpu { .. })
            )
        });
        self.begin(tid, Followed { looked_for, ..Followed::at_first(pid, table, number) });
    }

    /// Follows a thread from now on.
    pub(super) fn begin(&mut self, tid: i32, thread: Followed) {
        self.followers.insert(tid, thread);
        self.watched.add(tid);
    }

    fn execed(&mut self, tid: i32) {
        let former = ptrace::event_message(tid).map_or(tid, |former| former as i32);
        if let Some(executed) = self.executed.take() {
            self.filtered = executed();
        }
        let program = std::fs::read_link(format!("/proc/{tid}/exe")).unwrap_or_default();
        self.has_executed(tid, former, &program);
    }

    /// A process executes a program now. The thread that asked for it has become its first one, and had number `former`.
    pub(super) fn has_executed(&mut self, tid: i32, former: i32, program: &Path) {
        let now = self.book.now();
        if former != tid {
            self.gone(former, now);
        }
        let Some(thread) = self.followers.threads.get_mut(&tid) else { return };
        thread.inside = None;
        thread.has_run = false;
        let (pid, old) = (thread.pid, thread.table);
        let new = self.descriptors.copied(old);
        thread.table = new;
        if !self.followers.threads.values().any(|one| one.table == old) {
            self.descriptors.clear(old);
        }
        self.descriptors.look_again(tid, new);
        self.runs.retain(|(owner, _), _| *owner != pid);
        if let Some(note) = super::rights::lost_by(program) {
            self.book.note(note);
        }
        if let Some(process) = self.book.process(pid) {
            process.executed.push((now, program.to_string_lossy().into_owned()));
        }
    }

    pub(super) fn ending(&mut self, tid: i32) {
        let now = self.book.now();
        let Some(thread) = self.followers.threads.get_mut(&tid) else { return };
        thread.inside = None;
        thread.looked_for = false;
        let (pid, number) = (thread.pid, thread.number);
        self.book.trace.threads[number].ending = Some(now);
        self.book.ending(tid);
        if self.book.ledger.is_none() {
            self.see_unfollowed(pid);
        }
        if tid == pid {
            let resident = self.book.resident(pid);
            if let Some(process) = self.book.process(pid) {
                process.resident = resident;
            }
        }
    }

    /// Looks from now on at the threads of a process that are nobody's to follow: the kernel's workers, of which KVM's may be the last that
    /// have its memory, and so its VM.
    fn see_unfollowed(&mut self, pid: i32) {
        for tid in untraced(pid) {
            let is_known =
                self.book.trace.threads.iter().any(|one| one.tid == tid && one.gone.is_none());
            if !is_known && !self.followers.threads.contains_key(&tid) {
                let number = self.book.thread(tid, pid, None);
                self.book.trace.threads[number].works_as(name_of(tid));
                self.watched.add(tid);
            }
        }
    }

    fn ended(&mut self, tid: i32, status: i32) {
        let now = self.book.now();
        // Another process may get its number when it has ended.
        if tid == self.root && self.book.trace.end.is_none() {
            self.book.trace.end = Some(End::of(status));
            if let Some(process) = self.book.process(tid) {
                process.waited = Some(now);
            }
        }
        self.gone(tid, now);
        ptrace::reap(tid);
    }

    pub(super) fn gone(&mut self, tid: i32, now: u64) {
        self.watched.remove(tid);
        self.book.gone(tid);
        self.held.retain(|(_, held)| *held != tid);
        let Some((thread, last)) = self.followers.remove(tid) else { return };
        self.book.trace.threads[thread.number].gone = Some(now);
        if last {
            let unfollowed = self.book.trace.threads.iter();
            for one in unfollowed.filter(|one| one.is_worker() && one.pid == thread.pid) {
                self.watched.remove(one.tid);
            }
            let held = self.descriptors.vms(thread.table);
            if let Some(process) = self.book.process(thread.pid) {
                (process.gone, process.held) = (Some(now), held);
            }
            self.runs.retain(|(owner, _), _| *owner != thread.pid);
            if !self.followers.threads.values().any(|one| one.table == thread.table) {
                self.descriptors.clear(thread.table);
            }
        }
    }
}
