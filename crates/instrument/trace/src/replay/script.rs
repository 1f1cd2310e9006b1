//! What of a recorded life can be made again: its calls to KVM that need nothing of the program's but their arguments.

mod reading;
#[cfg(test)]
pub(super) mod tests;

use mayfly_kvm::Payload;

use crate::record::{Object, Trace};

/// A life to be played, and what of the recorded one is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    /// Nanoseconds between the last step and the close.
    pub(crate) before_close: u64,
    /// A clause each.
    pub(crate) left_out: Vec<String>,
    /// What stands for something that was not recorded, a clause each.
    pub(crate) stands_in: Vec<String>,
}

/// A call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) act: Act,
    /// Nanoseconds that pass before it: what the program did meanwhile.
    pub(crate) pause: u64,
    pub(crate) part: Part,
    /// Which of the trace's calls it was.
    pub(crate) call: usize,
}

/// Where in the life a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Up to the first entry of a vCPU.
    Start,
    /// While vCPUs ran.
    Meanwhile,
    /// Since the last exit.
    Close,
}

/// A call on the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    CreateVm,
    /// A slot is made, moved or changed.
    Slot {
        slot: u32,
        guest: u64,
        size: u64,
        flags: u32,
    },
    DeleteSlot {
        slot: u32,
    },
    TssAddress(u64),
    IdentityMap,
    Irqchip,
    SplitIrqchip,
    Pit,
    /// A table of so many routes.
    Routing(u64),
    Coalesced {
        address: u64,
        size: u32,
        is_there: bool,
    },
    IoEvent(IoEvent, Change),
    IrqFd {
        eventfd: u64,
        gsi: u32,
        change: Change,
    },
    Vcpu(u32),
    /// Several at a time, each on a thread; the remedy of one after the other.
    Vcpus(Vec<u32>),
    /// The first run, of a guest of a few instructions.
    Run(u32),
}

/// Whether a device comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Comes,
    Goes,
}

/// What an ioeventfd is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IoEvent {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) value: Option<u64>,
    pub(crate) is_port: bool,
    pub(crate) eventfd: u64,
}

impl Act {
    /// The call's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::CreateVm => "KVM_CREATE_VM",
            Self::Slot { .. } | Self::DeleteSlot { .. } => "KVM_SET_USER_MEMORY_REGION",
            Self::TssAddress(_) => "KVM_SET_TSS_ADDR",
            Self::IdentityMap => "KVM_SET_IDENTITY_MAP_ADDR",
            Self::Irqchip => "KVM_CREATE_IRQCHIP",
            Self::SplitIrqchip => "KVM_ENABLE_CAP",
            Self::Pit => "KVM_CREATE_PIT2",
            Self::Routing(_) => "KVM_SET_GSI_ROUTING",
            Self::Coalesced { is_there: true, .. } => "KVM_REGISTER_COALESCED_MMIO",
            Self::Coalesced { is_there: false, .. } => "KVM_UNREGISTER_COALESCED_MMIO",
            Self::IoEvent(..) => "KVM_IOEVENTFD",
            Self::IrqFd { .. } => "KVM_IRQFD",
            Self::Vcpu(_) | Self::Vcpus(_) => "KVM_CREATE_VCPU",
            Self::Run(_) => "KVM_RUN",
        }
    }

    /// Whether it changes memslots: Linux's own, of the TSS and the identity map, among them.
    pub(crate) fn is_memory(&self) -> bool {
        use Act::{DeleteSlot, IdentityMap, Slot, TssAddress};
        matches!(self, Slot { .. } | DeleteSlot { .. } | TssAddress(_) | IdentityMap)
    }
}

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
        script.left_out.push("what the guest did, and what was touched of its memory".to_owned());
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
            self.left_out.push("KVM_RUN, for want of memory at the guest's address 0".to_owned());
        }
    }
}

/// Whose VM a call is on.
pub(crate) fn vm_of(on: Option<&Object>) -> Option<usize> {
    match on? {
        Object::Vm { vm } | Object::Vcpu { vm, .. } | Object::Device { vm } => Some(*vm),
        Object::Kvm => None,
    }
}
