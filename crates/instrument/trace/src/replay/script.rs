//! What of a recorded life can be made again: its calls to KVM that need nothing of the program's but their arguments.

mod reading;
mod step;
#[cfg(test)]
pub(super) mod tests;

use mayfly_kvm::Payload;

use crate::record::Trace;
pub(crate) use step::{Act, Change, IoEvent, Part, Script, Step, vm_of};

/// `KVM_MEM_READONLY`.
const READ_ONLY: u32 = 2;

/// More calls than these while vCPUs run are not made again: each life would take too long.
const MOST_MEANWHILE: usize = 500;

impl Script {
    /// Of the VM that a trace is about; an error is a clause that says why there is none.
    pub(crate) fn of(trace: &Trace) -> Result<Self, String> {
        let vm = trace.vm().ok_or("no VM was created")?;
        let others =
            trace.calls.iter().filter(|call| call.name == "KVM_CREATE_VM" && call.succeeded());
        let mut reading = reading::Reading::new(trace, vm);
        for call in 0..trace.calls.len() {
            reading.read(call);
        }
        let mut script = reading.script();
        if !matches!(script.steps.first(), Some(Step { act: Act::CreateVm, .. })) {
            return Err("the VM was there before the trace began".to_owned());
        }
        if others.count() > 1 {
            script.left_out.push("the program's other VMs".to_owned());
        }
        let meanwhile = |step: &Step| step.part == Part::Meanwhile;
        let many = script.steps.iter().filter(|step| meanwhile(step)).count();
        if many > MOST_MEANWHILE {
            script.steps.retain(|step| !meanwhile(step));
            script.left_out.push(format!("{many} calls made while vCPUs ran"));
        }
        script.leave_out_a_run_without_room();
        script.left_out.push("the guest's own work, and accesses to its memory".to_owned());
        Ok(script)
    }
}

impl Script {
    /// The guest's code is put where guests begin; without memory there, there is no run.
    fn leave_out_a_run_without_room(&mut self) {
        let has_room = |step: &Step| matches!(step.act, Act::Slot { guest: 0, size, flags, .. } if size >= Payload::FREE && flags & READ_ONLY == 0);
        let room = self.steps.iter().position(has_room);
        let run = self.steps.iter().position(|step| matches!(step.act, Act::Run(_)));
        if let Some(run) = run.filter(|run| room.is_none_or(|room| room > *run)) {
            self.steps.remove(run);
            self.left_out.push("KVM_RUN, because the guest has no memory at address 0".to_owned());
        }
    }
}
