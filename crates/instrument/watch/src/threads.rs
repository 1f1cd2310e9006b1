//! The threads of a VMM in one interval: which run vCPUs, which are at work, and in which calls they wait.

mod proc;

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use mayfly_trace::ioctl_name;

use crate::row::Wait;
pub(crate) use proc::threads_of;
use proc::{Found, Stat, found};

/// Functions of the kernel's in which a halted vCPU waits.
const HALTS: [&str; 3] = ["kvm_vcpu_block", "kvm_vcpu_halt", "kvm_vcpu_wfi"];

/// The threads of one process in one interval.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    all: HashMap<i32, Thread>,
    waits: Vec<Waited>,
}

/// A thread.
#[derive(Debug, Default)]
struct Thread {
    /// The kernel's own.
    is_worker: bool,
    /// Whether it has been found to run a vCPU, ever.
    has_run: bool,
    /// Whether it was found in its guest, or on its way, in this interval.
    is_in: bool,
    /// Looks at it in this interval, and of these, those that found it at work.
    looks: u32,
    at_work: u32,
    /// The call that it is in, by descriptor and number, and since when.
    inside: Option<(i32, u64, Instant)>,
}

/// A call that was waited in.
#[derive(Debug)]
struct Waited {
    tid: i32,
    fd: i32,
    wait: Wait,
}

impl Threads {
    /// Begins another interval.
    pub(crate) fn begin(&mut self) {
        for thread in self.all.values_mut() {
            (thread.is_in, thread.looks, thread.at_work) = (false, 0, 0);
        }
        self.waits.clear();
    }

    /// Looks at each thread once.
    pub(crate) fn look(&mut self, pid: i32) {
        let tids = threads_of(pid);
        self.all.retain(|tid, _| tids.contains(tid));
        for tid in tids {
            let file = |name: &str| {
                fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).unwrap_or_default()
            };
            let thread = self.all.entry(tid).or_insert_with(|| {
                let is_worker = Stat::of(&file("stat")).is_some_and(|stat| stat.is_worker);
                Thread { is_worker, ..Thread::default() }
            });
            if thread.is_worker {
                continue;
            }
            let found = found(&file("syscall"), || file("wchan"));
            // One that is always at work is never found in a call.
            if found == Found::Runs && !thread.has_run {
                thread.has_run = Stat::of(&file("stat")).is_some_and(|stat| stat.guest > 0);
            }
            self.note(tid, found, Instant::now());
        }
    }

    fn note(&mut self, tid: i32, found: Found, now: Instant) {
        let thread = self.all.entry(tid).or_default();
        thread.looks += 1;
        let halts = |function: &str| HALTS.iter().any(|halt| function.starts_with(halt));
        match &found {
            Found::Runs => (thread.at_work, thread.is_in) = (thread.at_work + 1, true),
            Found::InRun(function) => {
                thread.at_work += u32::from(!halts(function));
                (thread.has_run, thread.is_in) = (true, true);
            }
            Found::Held => thread.has_run = true,
            _ => {}
        }
        let Found::InCall(fd, request, function) = found else {
            thread.inside = None;
            return;
        };
        // Two calls of the same kind, one right after the other, look like one.
        let same = thread.inside.filter(|(of, number, _)| (*of, *number) == (fd, request));
        let since = same.map_or(now, |(.., since)| since);
        thread.inside = Some((fd, request, since));
        let call = ioctl_name(request, thread.has_run);
        let function = (function != "0" && !function.is_empty()).then_some(function);
        let took = now - since;
        let known = self.waits.iter_mut().find(|one| one.fd == fd && one.wait.call == call);
        if let Some(Waited { wait, .. }) = known {
            wait.looks += 1;
            wait.at_least = wait.at_least.max(took);
            wait.function = function.or(wait.function.take());
        } else {
            let wait = Wait { call, function, looks: 1, at_least: took };
            self.waits.push(Waited { tid, fd, wait });
        }
    }

    /// The threads that were found to run a vCPU, ever.
    pub(crate) fn vcpus(&self) -> Vec<i32> {
        let mut vcpus: Vec<i32> =
            self.all.iter().filter(|(_, thread)| thread.has_run).map(|(tid, _)| *tid).collect();
        vcpus.sort_unstable();
        vcpus
    }

    /// How many of a hundred looks found one of these threads at work; none where there was no look.
    pub(crate) fn busy(&self, vcpus: &[i32]) -> Option<u32> {
        let threads = vcpus.iter().filter_map(|tid| self.all.get(tid));
        let sum = |(looks, at_work), one: &Thread| (looks + one.looks, at_work + one.at_work);
        let (looks, at_work) = threads.fold((0, 0), sum);
        (looks > 0).then(|| (at_work * 100).div_ceil(looks))
    }

    /// Whether one of these threads was in its guest, or on its way, in this interval.
    pub(crate) fn are_in(&self, vcpus: &[i32]) -> bool {
        vcpus.iter().any(|tid| self.all.get(tid).is_some_and(|thread| thread.is_in))
    }

    /// What was waited in, the longest first: all of it, or of one VM the calls on its descriptor and those of its vCPUs'
    /// threads.
    pub(crate) fn waits(&self, only: Option<(i32, &[i32])>) -> Vec<Wait> {
        let is_of =
            |one: &&Waited| only.is_none_or(|(vm, vcpus)| one.fd == vm || vcpus.contains(&one.tid));
        let mut waits: Vec<Wait> =
            self.waits.iter().filter(is_of).map(|one| one.wait.clone()).collect();
        waits.sort_by(|a, b| (b.at_least, b.looks, &a.call).cmp(&(a.at_least, a.looks, &b.call)));
        waits
    }
}

/// A pause between two looks, by what the last one took: no more than a tenth of one processor.
pub(crate) fn pause(took: Duration) -> Duration {
    (took * 9).max(Duration::from_millis(20))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A process of which these threads were seen, each in a call on a descriptor.
    pub(crate) fn that_wait(seen: &[(i32, i32)]) -> Threads {
        let mut threads = Threads::default();
        for (tid, fd) in seen {
            let call = Found::InCall(*fd, REGION, "synchronize_srcu".to_owned());
            threads.note(*tid, call, Instant::now());
        }
        threads
    }

    const REGION: u64 = 0x4020_AE46;

    #[test]
    fn a_call_that_goes_on_takes_at_least_the_time_between_its_looks() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let call = || Found::InCall(5, REGION, "synchronize_srcu".to_owned());
        let mut threads = Threads::default();
        threads.note(7, call(), at(0));
        threads.note(8, call(), at(0));
        threads.note(7, call(), at(10));
        threads.note(7, Found::Elsewhere, at(20));
        threads.note(7, call(), at(30));
        let name = "KVM_SET_USER_MEMORY_REGION".to_owned();
        let function = Some("synchronize_srcu".to_owned());
        let at_least = Duration::from_millis(10);
        let wait = vec![Wait { call: name, function, looks: 4, at_least }];
        assert_eq!((threads.waits(None), threads.waits(Some((5, &[])))), (wait.clone(), wait));
        // Of another VM, it is none; but what a vCPU's thread is in is of its VM, whatever the descriptor.
        assert_eq!(
            (threads.waits(Some((6, &[9]))).len(), threads.waits(Some((6, &[7]))).len()),
            (0, 1)
        );
        // It goes on over the end of an interval.
        threads.begin();
        threads.note(7, call(), at(45));
        assert_eq!(threads.waits(None)[0].at_least, Duration::from_millis(15));
    }

    #[test]
    fn a_halted_vcpu_is_not_at_work_and_who_never_ran_one_is_no_vcpu() {
        let now = Instant::now();
        let mut threads = Threads::default();
        threads.note(1, Found::Runs, now);
        assert_eq!(
            (threads.vcpus(), threads.busy(&[]), threads.busy(&[1])),
            (vec![], None, Some(100))
        );
        threads.note(1, Found::InRun("kvm_vcpu_block.part.0".to_owned()), now);
        assert_eq!(
            (threads.vcpus(), threads.busy(&[1]), threads.are_in(&[1])),
            (vec![1], Some(50), true)
        );
        threads.begin();
        threads.note(1, Found::Elsewhere, now);
        assert_eq!(
            (threads.vcpus(), threads.busy(&[1]), threads.are_in(&[1])),
            (vec![1], Some(0), false)
        );
    }

    #[test]
    fn a_thread_that_is_always_at_work_runs_no_vcpu_unless_it_was_in_a_guest() {
        let (number, told) = std::sync::mpsc::channel();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                number.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let spins = told.recv().unwrap();
            let mut threads = Threads::default();
            // The first looks find it on its way, maybe.
            for _ in 0..1000 {
                threads.look(std::process::id().cast_signed());
                if threads.busy(&[spins]).is_some_and(|busy| busy > 0) {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(threads.busy(&[spins]).is_some_and(|busy| busy > 0), "{threads:?}");
            assert!(!threads.vcpus().contains(&spins), "{threads:?}");
        });
    }

    #[test]
    fn a_thread_that_has_ended_is_forgotten() {
        let me = std::process::id().cast_signed();
        let mut threads = Threads::default();
        for tid in [me, i32::MAX] {
            threads.note(tid, Found::Held, Instant::now());
        }
        assert_eq!(threads.vcpus(), [me, i32::MAX]);
        // The next one with that number may be no vCPU's.
        threads.look(me);
        assert_eq!(threads.vcpus(), [me]);
    }

    #[test]
    fn a_vcpu_that_somebody_has_stopped_is_out_of_its_guest_and_not_at_work() {
        let call = format!("{} 0xc 0xae80 0x0", libc::SYS_ioctl);
        for function in ["do_signal_stop", "ptrace_stop.part.0", "do_freezer_trap"] {
            assert_eq!(found(&call, || function.to_owned()), Found::Held, "{function}");
        }
        let mut threads = Threads::default();
        threads.note(1, Found::Held, Instant::now());
        assert_eq!(
            (threads.vcpus(), threads.busy(&[1]), threads.are_in(&[1])),
            (vec![1], Some(0), false)
        );
    }

    #[test]
    fn looks_take_no_more_than_a_tenth_of_the_time() {
        let ms = Duration::from_millis;
        assert_eq!((pause(ms(0)), pause(ms(1)), pause(ms(50))), (ms(20), ms(20), ms(450)));
    }
}
