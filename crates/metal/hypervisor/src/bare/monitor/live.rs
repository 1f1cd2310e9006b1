//! A VM that runs is forked, and goes on.

use alloc::string::{String, ToString};
use alloc::sync::Arc;

use mayfly_hypervisor::ending::End;

use super::Monitor;
use crate::bare::processor::timer;
use crate::bare::vm::arch::NO_FORKS;
use crate::bare::vm::{Machine, Template};

impl Monitor {
    /// What a running VM is at this moment. It goes on.
    ///
    /// # Errors
    ///
    /// Why it cannot be forked. It goes on all the same, unless it has ended.
    pub(super) fn fork_running(&mut self, machine: &Machine) -> Result<Arc<Template>, String> {
        self.pass_on_until(u64::MAX, |_| !machine.is_going_back());
        if let Some(why) = machine.plan.has_no_forks().or(NO_FORKS) {
            return Err(why.to_string());
        }
        let needs = self.host.needs(&machine.plan, machine.disk_bytes());
        let room = machine.room(&needs)?;
        // Others may have borrowed what it is guaranteed.
        self.pass_on_until(u64::MAX, |_| room.is_active());
        let run = machine.stop_for_forks(room)?;
        let is_other = || run.ending() != Some(End::Frozen);
        loop {
            let seen = machine.asked().seen();
            if let Some(answer) = machine.asked().answered(is_other) {
                return answer;
            }
            machine.asked().wait(seen, timer::ticks() + timer::frequency() / 50);
            self.hear(timer::ticks(), false);
        }
    }
}
