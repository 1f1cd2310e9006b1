//! One look at a thread: what `/proc` says of its system call, of where in the kernel it is, and of how long it ran.
//!
//! Most threads sleep most of the time. One that has not had a processor since it was last seen asleep, and waits in the same
//! function, is where it was: of that no more is read.

use std::collections::HashMap;

use super::kept::Kept;
use super::usage::{Own, counts, own, processors, turns};
use crate::calls::KVM_RUN;
use crate::record::{Sample, Used};

/// Functions of a stack that are kept.
const DEPTH: usize = 24;

/// What was seen of a thread in one look.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) call: Option<(u64, [u64; 4])>,
    pub(super) channel: Option<String>,
    pub(super) stack: Vec<String>,
    /// What it has had of the processors in all.
    pub(super) used: Used,
    /// How often it has got one.
    pub(super) turns: u64,
    /// What it has had in all of what no call tells, if it was in none.
    pub(super) own: Option<Own>,
    /// Whether it has run a vCPU.
    pub(super) has_run: bool,
}

impl Look {
    /// Whether it found its thread in a run of a vCPU.
    pub(super) fn runs_vcpu(&self) -> bool {
        self.call.is_some_and(|(_, arguments)| arguments[1] & 0xFFFF_FFFF == KVM_RUN)
    }

    /// Its thread has run a vCPU, and its own code has had so many page faults.
    pub(super) fn ran_vcpu(&mut self, faults: u64) {
        self.has_run = true;
        if let Some(own) = &mut self.own {
            own.faults = faults;
        }
    }

    pub(super) fn is_same(&self, sample: &Sample) -> bool {
        self.call == sample.call && self.channel == sample.channel && self.stack == sample.stack
    }
}

/// What came of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The thread sleeps where it was last seen to, and has not run since. It has had so much of the processors.
    Asleep(Used),
    /// Its tracer has stopped it: it is at nothing that it would do by itself.
    Stopped,
    At(Look),
}

/// What tells of threads, kept open from look to look.
#[derive(Default)]
pub(super) struct Looker {
    threads: HashMap<i32, Files>,
}

impl Looker {
    /// Looks at a thread; nothing where it is gone.
    pub(super) fn look(&mut self, tid: i32) -> Option<Seen> {
        let seen = self.threads.entry(tid).or_insert_with(|| Files::of(tid)).look();
        if seen.is_none() {
            // Another thread may have its number.
            self.threads.remove(&tid);
        }
        seen
    }

    /// The next look at a thread is a whole one.
    pub(super) fn forget(&mut self, tid: i32) {
        if let Some(files) = self.threads.get_mut(&tid) {
            files.last = None;
        }
    }

    /// Threads that are not looked at any more have no open files.
    pub(super) fn keep(&mut self, is_watched: impl Fn(i32) -> bool) {
        self.threads.retain(|tid, _| is_watched(*tid));
    }
}

/// The files of one thread. Those that this user may not read are none.
struct Files {
    channel: Option<Kept>,
    stack: Option<Kept>,
    call: Option<Kept>,
    processors: Option<Kept>,
    counts: Option<Kept>,
    /// Where it was asleep when it was last looked at, and what it had had of the processors, and how often.
    last: Option<(String, u64, u64)>,
}

impl Files {
    fn of(tid: i32) -> Self {
        let open = |name: &str| Kept::open(format!("/proc/{tid}/{name}"));
        Self {
            channel: open("wchan"),
            stack: open("stack"),
            call: open("syscall"),
            processors: processors(tid),
            counts: counts(tid),
            last: None,
        }
    }

    fn look(&mut self) -> Option<Seen> {
        // This comes first: a thread that runs after it has had more by the next look.
        let (used, turns) = self.processors.as_ref()?.read(turns)?;
        let channel = |text: &str| {
            let name = text.trim_end();
            (name != "0" && !name.is_empty()).then(|| function(name))
        };
        let channel = self.channel.as_ref().and_then(|file| file.read(channel));
        let now = channel.as_deref().map(|channel| (channel, used.ran, turns));
        let last = self.last.as_ref().map(|(channel, ran, turns)| (&channel[..], *ran, *turns));
        if now.is_some() && now == last {
            return Some(Seen::Asleep(used));
        }
        self.last = None;
        let stack = self.stack.as_ref().and_then(|file| file.read(|text| Some(stack(text))));
        let stack = stack.unwrap_or_default();
        let stopped = |name: &str| name.starts_with("ptrace_");
        if channel.as_deref().is_some_and(stopped) || stack.iter().take(3).any(|name| stopped(name))
        {
            return Some(Seen::Stopped);
        }
        let call = self.call.as_ref().and_then(|file| file.read(system_call));
        let is_free = call.is_none() && channel.is_none();
        let own = if is_free { self.counts.as_ref().and_then(|file| file.read(own)) } else { None };
        self.last = channel.clone().map(|channel| (channel, used.ran, turns));
        Some(Seen::At(Look { call, channel, stack, used, turns, own, has_run: false }))
    }
}

/// The call of `/proc/TID/syscall`; none where the thread runs, or waits outside of one.
fn system_call(text: &str) -> Option<(u64, [u64; 4])> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    Some((number, [argument()?, argument()?, argument()?, argument()?]))
}

/// A function's name in the source, without what a compiler has added of its own: `.part.0`, `.isra.0`.
fn function(name: &str) -> String {
    name.split('.').next().unwrap_or_default().to_owned()
}

/// The functions of `/proc/TID/stack`, innermost first.
fn stack(text: &str) -> Vec<String> {
    let functions = text.lines().filter_map(|line| {
        let (_, after) = line.split_once("] ")?;
        let name = function(after.split(['+', ' ']).next()?);
        (!name.is_empty()).then_some(name)
    });
    functions.take(DEPTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_read_and_what_it_does_not_say_is_left_out() {
        let text = "16 0xc 0x4020ae46 0x7ffc 0x0 0x0 0x0 0x7ffc1 0x7f12\n";
        assert_eq!(system_call(text), Some((16, [0xc, 0x4020_ae46, 0x7ffc, 0])));
        for text in ["running", "-1 0x7ffc1 0x7f12", "", "16", "16 0xc zz 0x1 0x2", "16 12 1 2 3"] {
            assert_eq!(system_call(text), None, "{text}");
        }
        let text = "[<0>] __synchronize_srcu.part.0+0xb1/0x150\n[<0>] kvm_swap_active_memslots+0x51/0xe0 [kvm]\nnonsense\n[<0>] \n";
        assert_eq!(stack(text), ["__synchronize_srcu", "kvm_swap_active_memslots"]);
        assert!(stack(&"[<0>] f+0x1/0x2\n".repeat(1000)).len() <= DEPTH);
    }

    #[test]
    fn a_thread_that_is_gone_is_not_seen_and_one_that_sleeps_is_seen_to() {
        let mut looker = Looker::default();
        assert_eq!(looker.look(i32::MAX), None);
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(matches!(looker.look(me), Some(Seen::At(look)) if look.channel.is_none()));
    }

    #[test]
    fn a_thread_that_sleeps_on_is_looked_at_once_and_anew_when_it_has_run() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (told, tid) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _ = told.send(rustix::thread::gettid().as_raw_nonzero().get());
            while wait.recv().is_ok() {}
        });
        let (tid, mut looker) = (tid.recv().unwrap(), Looker::default());
        // Where this user is not told in what a thread waits, each look is a whole one.
        let tells = |looker: &mut Looker| matches!(looker.look(tid), Some(Seen::At(look)) if look.channel.is_some());
        let sleeps = |looker: &mut Looker| {
            let patience = std::time::Instant::now();
            while !matches!(looker.look(tid), Some(Seen::Asleep(_))) {
                if patience.elapsed().as_secs() > 20 {
                    return false;
                }
                std::thread::yield_now();
            }
            true
        };
        if sleeps(&mut looker) {
            assert!(matches!(looker.look(tid), Some(Seen::Asleep(_))));
            looker.forget(tid);
            assert!(tells(&mut looker));
            assert!(matches!(looker.look(tid), Some(Seen::Asleep(_))));
            go.send(()).unwrap();
            // It runs, and is seen anew.
            while matches!(looker.look(tid), Some(Seen::Asleep(_))) {
                std::thread::yield_now();
            }
            assert!(sleeps(&mut looker));
        }
        drop(go);
        thread.join().unwrap();
        looker.keep(|_| false);
        assert!(looker.threads.is_empty());
    }
}
