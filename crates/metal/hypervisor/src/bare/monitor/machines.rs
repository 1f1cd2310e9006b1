//! The VMs that there are: each is found by its name, and all in the order in which they were made.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::ops::Bound::{Excluded, Unbounded};

use crate::bare::threads;
use crate::bare::vm::Machine;

#[derive(Default)]
pub(super) struct Machines {
    by_name: BTreeMap<String, Arc<Machine>>,
    by_number: BTreeMap<u64, Arc<Machine>>,
}

impl Machines {
    pub(super) fn insert(&mut self, machine: &Arc<Machine>) {
        self.by_name.insert(machine.plan.name.clone(), Arc::clone(machine));
        self.by_number.insert(machine.number, Arc::clone(machine));
    }

    pub(super) fn remove(&mut self, machine: &Machine) {
        self.by_name.remove(&machine.plan.name);
        self.by_number.remove(&machine.number);
    }

    /// Forgets all. Others have the processor in between.
    pub(super) fn clear(&mut self) {
        while let Some((_, machine)) = self.by_number.pop_first() {
            self.by_name.remove(&machine.plan.name);
            drop(machine);
            threads::preemption_point();
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<Machine>> {
        self.by_name.get(name)
    }

    /// The first that was made after the one of that number.
    pub(super) fn after(&self, number: u64) -> Option<&Arc<Machine>> {
        self.by_number.range((Excluded(number), Unbounded)).next().map(|(_, machine)| machine)
    }

    /// Does something with each. Others have the processor in between.
    pub(super) fn each(&self, mut work: impl FnMut(&Arc<Machine>)) {
        for machine in self.by_number.values() {
            work(machine);
            threads::preemption_point();
        }
    }
}
