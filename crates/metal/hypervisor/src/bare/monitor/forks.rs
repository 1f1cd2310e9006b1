//! VMs that are frozen, and those that begin as they were.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use mayfly_hypervisor::command::Forks;
use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::plan;

use super::{Monitor, make};
use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::vm::Machine;

impl Monitor {
    /// Does a command about forks.
    pub(super) fn obey_of_forks(&mut self, command: Forks) {
        match command {
            Forks::Freeze(name) => {
                if let Some(machine) = self.find(&name) {
                    self.freeze(&machine);
                }
            }
            Forks::Fork { name, from, count, parameters } => {
                self.fork(&name, &from, count, &parameters);
            }
            Forks::Serve { name, from, parameters } => self.serve_forks(&name, &from, &parameters),
            Forks::Reset(name) => {
                if let Some(machine) = self.find(&name) {
                    if machine.is_fork() {
                        self.stop(&machine);
                        self.start(&machine);
                    } else {
                        say!("mayfly: {name} is no fork: vm restart begins it again");
                    }
                }
            }
        }
    }

    fn freeze(&mut self, machine: &Machine) {
        let name = &machine.plan.name;
        if machine.template().is_some() {
            return say!("mayfly: {name} is frozen already");
        }
        let unable = machine.plan.has_no_forks().map_or(Ok(()), Err);
        match unable.and_then(|()| machine.end_frozen()) {
            Err(why) => say!("mayfly: {name} cannot be frozen: {why}"),
            Ok(run) => {
                // Its guest may turn itself off, or restart, before that. Or it goes on, and it was said why.
                let is_other = || run.ending() != Some(End::Frozen);
                self.pass_on_until(u64::MAX, |_| !machine.is_running() || is_other());
                if machine.template().is_none() && run.ending().is_some() {
                    say!("mayfly: {name} was not frozen: its guest has ended its run before");
                }
            }
        }
    }

    fn fork(&mut self, name: &str, from: &str, count: Option<u32>, parameters: &[String]) {
        let Some(model) = self.find(from) else { return };
        let Some(template) = model.template() else {
            return say!("mayfly: {from} is not frozen: vm freeze {from} first");
        };
        for number in 0..count.unwrap_or(1) {
            let name = if count.is_some() { format!("{name}-{number}") } else { name.into() };
            if !plan::is_name(&name) {
                return say!("mayfly: a name has 1 to 32 letters, digits, '-' and '_'");
            }
            if self.is_taken(&name) {
                return say!("mayfly: there is a VM {name} already");
            }
            let forked = model.plan.forked(&name, parameters).map_err(|why| say!("mayfly: {why}"));
            let Ok(plan) = forked else { return };
            let Some(machine) = make(plan, Some(Arc::clone(&template))) else { return };
            self.machines.push(Arc::clone(&machine));
            self.start(&machine);
            threads::preemption_point();
        }
    }
}
