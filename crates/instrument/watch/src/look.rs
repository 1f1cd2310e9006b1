//! Looks at all VMs, once for each interval.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use crate::counters::Exits;
use crate::missing;
use crate::numbers::Numbers;
use crate::row::{Row, Sight, State};
use crate::threads::{Threads, pause, threads_of};
use crate::vms::{Holder, Name, find};

/// What is known of a VM from before.
#[derive(Default)]
struct Vm {
    /// Its exits when the last interval ended.
    before: Option<Exits>,
    /// The threads that run its vCPUs, where the kernel says so.
    threads: Vec<i32>,
    /// Whether a vCPU of it has been seen to run.
    has_run: bool,
}

/// Looks at VMs, interval by interval.
pub struct Watcher {
    only: Option<i32>,
    numbers: Numbers,
    vms: HashMap<Name, Vm>,
    threads: HashMap<i32, Threads>,
}

impl Watcher {
    /// Of all processes, or of one.
    pub fn new(only: Option<i32>) -> Self {
        let (vms, threads) = (HashMap::new(), HashMap::new());
        Self { only, numbers: Numbers::find(), vms, threads }
    }

    /// Looks for so long, and says what was seen. What comes and goes within is not seen.
    pub fn look(&mut self, interval: Duration) -> Sight {
        let begun = Instant::now();
        self.threads.values_mut().for_each(Threads::begin);
        let holders = find(self.only).holders;
        // Those that were not there before are counted from now on; some of them are once their threads are known.
        self.count_first(&holders);
        let mut looks = 0;
        loop {
            let before = Instant::now();
            for holder in &holders {
                self.look_at(holder);
            }
            if looks == 0 {
                self.count_first(&holders);
            }
            looks += 1;
            let left = interval.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            sleep(pause(before.elapsed()).min(left));
        }
        let found = find(self.only);
        let rows: Vec<Row> = found.holders.iter().flat_map(|holder| self.rows(holder)).collect();
        let is_there = |name: &Name| rows.iter().any(|row| (row.pid, row.vm) == *name);
        self.vms.retain(|name, _| is_there(name));
        self.numbers.retain(&is_there);
        self.threads.retain(|pid, _| found.holders.iter().any(|holder| holder.pid == *pid));
        let missing = missing::closed(found.closed).into_iter().collect();
        Sight { at: SystemTime::now(), took: begun.elapsed(), looks, rows, missing }
    }

    /// Counts exits of VMs of which none were counted.
    fn count_first(&mut self, holders: &[Holder]) {
        for holder in holders {
            for vm in &holder.vms {
                let known = self.vms.entry((holder.pid, *vm)).or_default();
                if known.before.is_none() {
                    let numbers = self.numbers.of(holder, &threads_of(holder.pid), *vm);
                    (known.before, known.threads) = (numbers.exits, numbers.threads);
                }
            }
        }
    }

    /// Looks at each thread of a process once.
    fn look_at(&mut self, holder: &Holder) {
        let threads = self.threads.entry(holder.pid).or_default();
        threads.look(holder.pid);
        for vm in &holder.vms {
            let name = (holder.pid, *vm);
            let known = self.vms.get(&name).map(|vm| vm.threads.clone()).unwrap_or_default();
            let vcpus = vcpus(known, holder, threads);
            self.numbers.follow(name, vcpus);
        }
    }

    fn rows(&mut self, holder: &Holder) -> Vec<Row> {
        let tids = threads_of(holder.pid);
        let threads = self.threads.entry(holder.pid).or_default();
        let is_alone = holder.vms.len() == 1;
        let rows = holder.vms.iter().map(|vm| {
            let known = self.vms.entry((holder.pid, *vm)).or_default();
            let numbers = self.numbers.of(holder, &tids, *vm);
            known.threads.clone_from(&numbers.threads);
            let exits = numbers.exits;
            let before = exits.clone().and_then(|now| known.before.replace(now));
            let recent = exits.as_ref().zip(before.as_ref()).map(|(now, before)| now.since(before));
            let vcpus = vcpus(numbers.threads, holder, threads);
            known.has_run |= exits.as_ref().is_some_and(|exits| exits.all > 0) || !vcpus.is_empty();
            let busy = threads.busy(&vcpus);
            let seen = Seen {
                has_run: known.has_run,
                is_told: numbers.vcpus.is_some() || holder.vcpus.is_empty(),
                has_exits: recent.as_ref().map(|recent| recent.all > 0),
                threads: busy.map(|busy| (threads.are_in(&vcpus), busy)),
            };
            Row {
                pid: holder.pid,
                vm: *vm,
                program: holder.program.clone(),
                name: holder.name.clone(),
                vcpus: numbers.vcpus,
                state: seen.state(),
                busy,
                source: numbers.source,
                exits,
                recent,
                waits: threads.waits((!is_alone).then_some((*vm, &vcpus))),
                missing: numbers.missing,
            }
        });
        rows.collect()
    }
}

/// The threads that run a VM's vCPUs: those that the kernel names; else those that were found to run one, where the process
/// has no other VM.
fn vcpus(named: Vec<i32>, holder: &Holder, threads: &Threads) -> Vec<i32> {
    if named.is_empty() && holder.vms.len() == 1 { threads.vcpus() } else { named }
}

/// What a VM's state is told by.
struct Seen {
    has_run: bool,
    /// Whether it would have been seen to run: of a process with several VMs and vCPUs, the kernel must say whose these are.
    is_told: bool,
    /// Whether it has left its guest in this interval.
    has_exits: Option<bool>,
    /// Whether one of its vCPUs' threads was in the guest, or on its way, and how many of a hundred looks found one at work;
    /// where the threads are known, and were looked at.
    threads: Option<(bool, u32)>,
}

impl Seen {
    fn state(&self) -> State {
        match (self.threads, self.has_exits) {
            _ if !self.has_run && !self.is_told => State::Unknown,
            _ if !self.has_run => State::Starts,
            (Some((true, 0)), _) => State::Idle,
            (Some((true, _)), _) | (None, Some(true)) => State::Runs,
            // A VM that came in this interval was not looked at; nor are threads that no source names.
            (None, None) => State::Unknown,
            _ => State::Stopped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debugfs::tests::with_vms;
    use crate::numbers::tests::of_debugfs;
    use crate::threads::tests::that_wait;

    #[test]
    fn of_several_vms_each_has_the_waits_on_it_and_those_of_its_vcpus_threads() {
        let me = std::process::id().cast_signed();
        // A vCPU's thread in a call on what it runs; others on a VM, and on something that may be of either.
        let threads = that_wait(&[(71, 9), (73, 6), (74, 12)]);
        let vms: [(_, _, &[_]); 2] = [(me, 5, &[Some(71)]), (me, 6, &[Some(72)])];
        let waits = with_vms("look", &vms, |debugfs| {
            let mut watcher = Watcher {
                only: None,
                numbers: of_debugfs(Some(debugfs)),
                vms: HashMap::new(),
                threads: HashMap::from([(me, threads)]),
            };
            [&[5, 6][..], &[5]].map(|vms| -> Vec<usize> {
                let holder = Holder { pid: me, vms: vms.to_vec(), ..Holder::default() };
                watcher.rows(&holder).iter().map(|row| row.waits.len()).collect()
            })
        });
        assert_eq!(waits, [vec![1, 1], vec![3]]);
    }

    #[test]
    fn a_process_that_is_gone_is_forgotten() {
        let mut watcher = Watcher::new(Some(i32::MAX));
        watcher.threads.insert(i32::MAX, that_wait(&[(i32::MAX, 5)]));
        watcher.vms.insert((i32::MAX, 5), Vm::default());
        let sight = watcher.look(Duration::ZERO);
        // Another that gets its number begins anew.
        assert!(watcher.threads.is_empty() && watcher.vms.is_empty());
        assert_eq!((sight.rows, sight.looks), (vec![], 1));
    }

    #[test]
    fn a_state_is_told_by_what_was_seen() {
        let state = |has_run, has_exits, threads| {
            Seen { has_run, is_told: true, has_exits, threads }.state()
        };
        assert_eq!(state(false, Some(false), Some((false, 0))), State::Starts);
        assert_eq!(state(false, None, None), State::Starts);
        assert_eq!(state(true, Some(true), Some((true, 70))), State::Runs);
        // A guest that never leaves is at work, too.
        assert_eq!(state(true, Some(false), Some((true, 100))), State::Runs);
        assert_eq!(state(true, Some(true), Some((true, 0))), State::Idle);
        assert_eq!(state(true, None, Some((true, 0))), State::Idle);
        assert_eq!(state(true, Some(false), Some((false, 0))), State::Stopped);
        assert_eq!(state(true, None, Some((false, 0))), State::Stopped);
        assert_eq!(state(true, Some(true), None), State::Runs);
        assert_eq!(state(true, None, None), State::Unknown);
        // No source says which VM the vCPUs of the process belong to: it may have run, or not.
        let nameless = Seen { has_run: false, is_told: false, has_exits: None, threads: None };
        assert_eq!(nameless.state(), State::Unknown);
    }
}
