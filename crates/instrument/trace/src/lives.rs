//! The lives of several VMs of one program: phases, bounds and critical paths of each.
//!
//! A VM that is never entered has no life here: a program makes such VMs to see what KVM can do.

use std::collections::BTreeSet;

use crate::path::Way;
use crate::phases::Scope;
use crate::record::{Call, Life, Trace};

impl Trace {
    /// The life of each VM that was entered, if these are several.
    pub(crate) fn find_lives(&self) -> Vec<Life> {
        let runs = self.calls.iter().filter(|call| call.name == "KVM_RUN");
        let vms: BTreeSet<usize> = runs.filter_map(Call::vm).collect();
        if vms.len() < 2 {
            return Vec::new();
        }
        vms.iter().filter_map(|vm| self.life(*vm, &vms)).collect()
    }

    fn life(&self, vm: usize, all: &BTreeSet<usize>) -> Option<Life> {
        let made = self.creation(Some(vm));
        let of_vm = || self.calls.iter().filter(|call| call.vm() == Some(vm));
        let run = of_vm().find(|call| call.name == "KVM_RUN")?;
        let (pid, entry) = (made.unwrap_or(run).pid, run.at);
        // A process of its own begins with what it executes; else a VM begins with the call that creates it.
        let others = all.iter().filter(|other| **other != vm);
        let is_alone =
            others.filter_map(|other| self.creation(Some(*other))).all(|one| one.pid != pid);
        let process = self.processes.iter().rfind(|one| one.pid == pid);
        let executed = || {
            let mut times = process?.executed.iter().map(|(at, _)| *at);
            times.rfind(|at| *at <= entry)
        };
        let own = if is_alone { executed() } else { None };
        let from = own.or(made.map(|call| call.at)).unwrap_or(0);
        let exit = self.last_exit_of(vm);
        let program = Some(pid);
        let scope = Scope { vm: Some(vm), program, entry: Some(entry), exit, from, to: None };
        let phases = self.phases_in(&scope);
        let last = phases.last()?;
        let end = last.at;
        let stop = exit.and_then(|exit| end.checked_sub(exit)).filter(|stop| *stop > 0);
        let start = Way { to: "first entry".to_owned(), from, tid: run.tid, end: entry };
        let is_last = |call: &&Call| call.end() == end && call.name != "KVM_RUN";
        let closer = self.calls.iter().find(is_last).map(|call| call.tid);
        let last_tid = closer.or_else(|| Some(self.last_gone(pid)?.tid));
        let stop_way = exit.filter(|exit| *exit < end).zip(last_tid).map(|(exit, tid)| Way {
            to: last.name.clone(),
            from: exit,
            tid,
            end,
        });
        let critical_paths = self.find_paths([Some(start), stop_way].into_iter().flatten());
        let (took, start) = (end - from, entry.saturating_sub(from));
        Some(Life { vm, pid, at: from, took, start, stop, phases, critical_paths })
    }
}

#[cfg(test)]
mod tests;
