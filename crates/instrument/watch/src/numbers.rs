//! The sources of a VM's exits, the best first.

use std::collections::HashMap;

use crate::counters::Exits;
use crate::debugfs::Debugfs;
use crate::missing;
use crate::statistics;
use crate::tracepoints::Tracepoints;
use crate::vms::{Holder, Name};

/// All sources.
pub(crate) struct Numbers {
    debugfs: Result<Debugfs, String>,
    /// Found when it is needed first.
    tracepoints: Option<Result<Tracepoints, String>>,
    /// Of each VM that is counted by tracepoints, the threads that run its vCPUs.
    vcpus: HashMap<Name, Vec<i32>>,
}

/// What is to be had of a VM.
#[derive(Default)]
pub(crate) struct Known {
    /// How many vCPUs it has.
    pub(crate) vcpus: Option<usize>,
    /// The threads that run them, where the kernel says so.
    pub(crate) threads: Vec<i32>,
    pub(crate) exits: Option<Exits>,
    pub(crate) source: Option<&'static str>,
    /// What is not to be had, and why.
    pub(crate) missing: Option<String>,
}

impl Numbers {
    pub(crate) fn find() -> Self {
        let debugfs = Debugfs::find().map_err(|error| missing::debugfs(&error));
        Self { debugfs, tracepoints: None, vcpus: HashMap::new() }
    }

    /// Of one of a process's VMs.
    pub(crate) fn of(&mut self, holder: &Holder, threads: &[i32], vm: i32) -> Known {
        let vcpus = (holder.vms.len() == 1).then_some(holder.vcpus.len());
        let mut known = Known { vcpus, ..Known::default() };
        let mut missing = Vec::new();
        match self.debugfs.as_ref().map(|debugfs| debugfs.vm(threads, vm)) {
            Err(why) => missing.push(why.clone()),
            Ok(None) => missing.push("debugfs names it by a thread that has ended".to_owned()),
            Ok(Some(counted)) => {
                known.vcpus = Some(counted.vcpus.len());
                known.threads = counted.vcpus.into_iter().filter(|tid| *tid > 0).collect();
                if let Some(exits) = Exits::of(&counted.counters) {
                    return Known { exits: Some(exits), source: Some("debugfs"), ..known };
                }
                let locked = "the kernel's lockdown hides the counters in debugfs";
                let why = if counted.is_locked { locked } else { "debugfs counts no exits" };
                missing.push(why.to_owned());
            }
        }
        let counted = statistics::of(holder).and_then(|counters| {
            Exits::of(&counters).ok_or_else(|| "its statistics files count no exits".to_owned())
        });
        match counted {
            Ok(exits) => return Known { exits: Some(exits), source: Some("statistics"), ..known },
            Err(why) => missing.push(why),
        }
        match self.by_tracepoints((holder.pid, vm)) {
            Ok((exits, is_partial)) => {
                let why = "this KVM has no tracepoint for its exits: its other tracepoints are counted, and there are more exits than that";
                let missing = is_partial.then(|| why.to_owned());
                Known { exits: Some(exits), source: Some("tracepoints"), missing, ..known }
            }
            Err(why) => {
                missing.push(why);
                Known { missing: Some(missing.join("; ")), ..known }
            }
        }
    }

    fn by_tracepoints(&mut self, name: Name) -> Result<(Exits, bool), String> {
        let found = self.tracepoints.get_or_insert_with(|| {
            Tracepoints::find().map_err(|error| missing::tracepoints(&error))
        });
        let tracepoints = found.as_mut().map_err(|why| why.clone())?;
        let counted = tracepoints.exits(self.vcpus.entry(name).or_default());
        counted.ok_or_else(|| "none of its vCPUs was seen to run".to_owned())
    }

    /// Counts what these threads of a VM do from now on, if it is counted by tracepoints.
    pub(crate) fn follow(&mut self, name: Name, vcpus: Vec<i32>) {
        let Some(known) = self.vcpus.get_mut(&name).filter(|known| **known != vcpus) else {
            return;
        };
        *known = vcpus;
        let Some(Ok(tracepoints)) = &mut self.tracepoints else { return };
        let all = &self.vcpus;
        let is_one = |tid| all.values().any(|vcpus| vcpus.contains(&tid));
        if let Err(error) = tracepoints.follow(&all[&name], &is_one) {
            self.tracepoints = Some(Err(missing::tracepoints(&error)));
        }
    }

    /// Forgets VMs that are gone.
    pub(crate) fn retain(&mut self, is_there: &dyn Fn(&Name) -> bool) {
        self.vcpus.retain(|name, _| is_there(name));
        if let Some(Ok(tracepoints)) = &mut self.tracepoints {
            tracepoints.retain(&|tid| self.vcpus.values().any(|vcpus| vcpus.contains(&tid)));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::debugfs::tests::with_vms;

    /// Where nothing but this is to be had.
    pub(crate) fn of_debugfs(debugfs: Option<Debugfs>) -> Numbers {
        let debugfs = debugfs.ok_or_else(|| "no debugfs".to_owned());
        let tracepoints = Some(Err("no tracepoints".to_owned()));
        Numbers { debugfs, tracepoints, vcpus: HashMap::new() }
    }

    #[test]
    fn of_several_vms_of_a_process_nobody_but_kvm_says_whose_its_vcpus_are() {
        let one = Holder { pid: 77, vms: vec![5], vcpus: [0, 1, 2].into(), ..Holder::default() };
        let two = Holder { vms: vec![5, 6], ..one.clone() };
        let mut numbers = of_debugfs(None);
        let [alone, among] = [&one, &two].map(|holder| numbers.of(holder, &[77], 5).vcpus);
        assert_eq!((alone, among), (Some(3), None));
    }

    #[test]
    fn a_vcpu_that_no_thread_has_run_is_counted_and_no_thread_is_named_for_it() {
        let holder = Holder { pid: 77, vms: vec![5], ..Holder::default() };
        let vcpus = [Some(0), Some(79), None];
        let known = with_vms("numbers", &[(77, 5, &vcpus)], |debugfs| {
            of_debugfs(Some(debugfs)).of(&holder, &[77], 5)
        });
        // To who counts a thread's events 0 is himself.
        assert_eq!((known.vcpus, known.threads), (Some(3), vec![79]));
        let missing = known.missing.unwrap();
        assert!(missing.starts_with("debugfs counts no exits; "), "{missing}");
    }

    #[test]
    fn threads_of_vms_that_are_gone_are_counted_no_more() {
        let mut numbers = Numbers {
            debugfs: Err(String::new()),
            tracepoints: Some(Ok(Tracepoints::of_threads(&[7, 8]))),
            vcpus: HashMap::from([((1, 5), vec![7]), ((2, 5), vec![8])]),
        };
        numbers.retain(&|name| *name == (2, 5));
        let Some(Ok(tracepoints)) = &numbers.tracepoints else { panic!("they are still there") };
        assert_eq!((tracepoints.threads(), numbers.vcpus.len()), (vec![8], 1));
    }
}
