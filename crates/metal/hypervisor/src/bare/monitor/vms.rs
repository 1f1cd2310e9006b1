//! VMs, from the command that makes one to the one that removes it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::plan::{self, Plan};

use super::{Monitor, host};
use crate::bare::own::disk;
use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::vm::arch::refused;
use crate::bare::vm::{Machine, Template};

impl Monitor {
    pub(super) fn find(&self, name: &str) -> Result<Arc<Machine>, String> {
        let found = self.machines.find(name);
        found.cloned().ok_or_else(|| format!("there is no VM {name}"))
    }

    /// A frozen VM, and what it was.
    pub(super) fn frozen(&self, name: &str) -> Result<(Arc<Machine>, Arc<Template>), String> {
        let model = self.find(name)?;
        let template = model
            .template()
            .ok_or_else(|| format!("{name} is not frozen: vm freeze {name} first"))?;
        Ok((model, template))
    }

    /// Whether a VM can get this name.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(super) fn check_name(&self, name: &str) -> Result<(), String> {
        if !plan::is_name(name) {
            return Err("a name has 1 to 32 letters, digits, '-' and '_'".to_string());
        }
        self.check_free(name)
    }

    /// Whether no VM and no service has this name.
    ///
    /// # Errors
    ///
    /// That one has it.
    pub(super) fn check_free(&self, name: &str) -> Result<(), String> {
        let is_taken = self.machines.find(name).is_some()
            || self.services.iter().any(|served| served.name == name);
        if is_taken { Err(format!("there is a VM {name} already")) } else { Ok(()) }
    }

    pub(super) fn create(
        &mut self,
        name: &str,
        like: &str,
        parameters: &[String],
        arguments: Option<String>,
    ) -> Result<(), String> {
        let model = self.find(like)?;
        self.check_name(name)?;
        let plan = model.plan.changed(name, parameters, arguments)?;
        self.machines.insert(&make(plan, None)?);
        Ok(())
    }

    pub(super) fn start(&mut self, machine: &Arc<Machine>) -> Result<(), String> {
        self.start_since(machine, timer::ticks())
    }

    /// The same, for a command of so many ticks ago.
    pub(super) fn start_since(&mut self, machine: &Arc<Machine>, since: u64) -> Result<(), String> {
        let name = &machine.plan.name;
        if machine.template().is_some() {
            return Err(format!(
                "{name} is frozen, and runs no more: vm fork makes a VM that does"
            ));
        }
        if machine.is_running() {
            return Err(format!("{name} is running"));
        }
        if let Some(why) = refused(&machine.plan) {
            return Err(format!("{name} does not start: {why}"));
        }
        if machine.plan.partition.is_some() {
            // The claim fails if it is not known then.
            let patience = timer::ticks() + 10 * timer::frequency();
            self.pass_on_until(patience, |_| disk::is_known());
        }
        machine.claim().map_err(|why| format!("{name} does not start: {why}"))?;
        machine.counts.ask(since);
        let needs = self.host.needs(&machine.plan, machine.disk_bytes());
        machine.admit(&needs).map_err(|why| {
            machine.over();
            format!("{name} does not start: it needs {needs}; {why}")
        })?;
        machine.begin();
        // Others may have borrowed what it is guaranteed.
        self.pass_on_until(u64::MAX, |_| machine.has_memory());
        let (host, its) = (Arc::clone(&self.host), Arc::clone(machine));
        let begun = host::spawn(machine, move || host::run(&*host, &its));
        begun.map_err(|why| format!("{name} does not start: {why}"))
    }

    pub(super) fn stop(&mut self, machine: &Machine) {
        machine.end(End::Killed);
        self.wait(machine);
    }

    /// Waits until a VM has stopped, and everything that it had is freed.
    pub(super) fn wait(&mut self, machine: &Machine) {
        self.pass_on_until(u64::MAX, |_| !machine.is_running());
    }

    /// Ends a VM or a service, and removes it.
    pub(super) fn destroy(&mut self, name: &str) -> Result<(), String> {
        if self.end_service(name) {
            return Ok(());
        }
        let machine = self.find(name)?;
        self.stop(&machine);
        if self.front.as_ref().is_some_and(|front| Arc::ptr_eq(front, &machine)) {
            self.show(None);
        }
        self.machines.remove(&machine);
        Ok(())
    }
}

/// Makes a VM that begins as `origin`, or with its kernel.
///
/// # Errors
///
/// Why not.
pub(super) fn make(plan: Plan, origin: Option<Arc<Template>>) -> Result<Arc<Machine>, String> {
    let machine = Machine::try_new(plan, origin).map(Arc::new);
    threads::preemption_point();
    machine
}
