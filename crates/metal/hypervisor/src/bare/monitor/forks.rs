//! VMs that are frozen, and those that begin as they were.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use mayfly_hypervisor::command::Forks;
use mayfly_hypervisor::ending::End;

use super::{Monitor, make};
use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::vm::Machine;
use crate::bare::vm::arch::NO_FORKS;

impl Monitor {
    /// Does a command about forks.
    ///
    /// # Errors
    ///
    /// Why it could not.
    pub(super) fn obey_of_forks(&mut self, command: Forks) -> Result<(), String> {
        match command {
            Forks::Freeze(name) => self.freeze(&*self.find(&name)?),
            Forks::Fork { name, from, count, parameters } => {
                self.fork(&name, &from, count, &parameters)
            }
            Forks::Serve { name, from, parameters } => {
                self.serve_forks(&name, &from, &parameters);
                Ok(())
            }
            Forks::Reset(name) => {
                let machine = self.find(&name)?;
                self.reset(&machine)
            }
        }
    }

    /// Has a fork go back to what it began as: with what it has, if it runs.
    fn reset(&mut self, machine: &Arc<Machine>) -> Result<(), String> {
        if !machine.is_fork() {
            let name = &machine.plan.name;
            return Err(format!("{name} is no fork: vm restart begins it again"));
        }
        if machine.go_back() {
            return Ok(());
        }
        self.stop(machine);
        self.start(machine)
    }

    fn freeze(&mut self, machine: &Machine) -> Result<(), String> {
        let name = &machine.plan.name;
        if machine.template().is_some() {
            return Err(format!("{name} is frozen already"));
        }
        self.pass_on_until(u64::MAX, |_| !machine.is_going_back());
        let unable = machine.plan.has_no_forks().or(NO_FORKS).map_or(Ok(()), Err);
        let run = unable
            .and_then(|()| machine.end_frozen())
            .map_err(|why| format!("{name} cannot be frozen: {why}"))?;
        // Its guest may turn itself off, or restart, before that. Or it goes on, and the console says why.
        let is_other = || run.ending() != Some(End::Frozen);
        self.pass_on_until(u64::MAX, |_| !machine.is_running() || is_other());
        match (machine.template(), run.ending()) {
            (Some(_), _) => Ok(()),
            (None, Some(_)) => {
                Err(format!("{name} was not frozen: its guest has ended its run before"))
            }
            (None, None) => Err(format!("{name} was not frozen: the console says why")),
        }
    }

    fn fork(
        &mut self,
        name: &str,
        from: &str,
        count: Option<u32>,
        parameters: &[String],
    ) -> Result<(), String> {
        let model = self.find(from)?;
        // With the stop of a VM that runs: its first fork waits for that.
        let mut since = model.template().is_none().then(timer::ticks);
        let name_of = |number| match count {
            Some(_) => format!("{name}-{number}"),
            None => name.into(),
        };
        // Before the VM is stopped, if it runs.
        let plan_of = |monitor: &Self, number| {
            let name = name_of(number);
            monitor.check_name(&name)?;
            model.plan.forked(&name, parameters)
        };
        let mut next = Some(plan_of(self, 0)?);
        let template = match model.template() {
            Some(template) => Ok(template),
            None => self.fork_running(&model),
        };
        let template = template.map_err(|why| format!("{from} is not forked: {why}"))?;
        for number in 0..count.unwrap_or(1) {
            let plan = next.take().map_or_else(|| plan_of(self, number), Ok)?;
            let machine = make(plan, Some(Arc::clone(&template)))?;
            self.machines.insert(&machine);
            self.start_since(&machine, since.take().unwrap_or_else(timer::ticks))?;
            threads::preemption_point();
        }
        Ok(())
    }
}
