//! Changes a script as a cause's remedy says, if the remedy is about which calls are made, and when.

use super::script::{Act, Part, Script, Step, vm_of};
use crate::record::{Recorder, Stall, Trace};

/// Another way to make the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Of one part of the life: memslots, then vCPUs, then what is registered.
    MemoryFirst(Part),
    /// Interrupt controllers in the program, but for the local APICs, and no timer.
    SplitIrqchip,
    /// vCPUs created by threads, several at a time.
    VcpusTogether,
}

impl Remedy {
    /// That of a wait; an error is a clause that says why a replay cannot tell what it gains.
    pub(crate) fn of(trace: &Trace, script: &Script, stall: &Stall) -> Result<Self, String> {
        let code = stall.cause.as_ref().map_or("", |cause| &cause.code);
        match code {
            "grace-period" => {
                let step =
                    step_of(trace, script, stall).ok_or_else(|| not_replayed(trace, stall))?;
                match step.part {
                    Part::Meanwhile => {
                        Err("while vCPUs run, what the guest does decides the order")
                    }
                    part => Ok(Self::MemoryFirst(part)),
                }
            }
            "irqchip-creation" => Ok(Self::SplitIrqchip),
            "vcpus-one-by-one" => Ok(Self::VcpusTogether),
            "huge-page-worker" => {
                Err("the remedy is a setting of the host, which mayfly does not change")
            }
            "slot-delete" => Err("what the guest had mapped is not in the record"),
            "vm-destruction" => {
                Err("the remedy moves the wait to another thread and saves no call")
            }
            _ => Err("the order of KVM's calls does not matter for it"),
        }
        .map_err(str::to_owned)
    }

    /// A few words for it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::MemoryFirst(Part::Close) => "memslots deleted before devices are unregistered",
            Self::MemoryFirst(_) => "memory before the irqchip, and vCPUs before other devices",
            Self::SplitIrqchip => "a split irqchip, and no timer",
            Self::VcpusTogether => "vCPUs created by several threads",
        }
    }

    /// The life with the remedy; an error is a clause that says why there is no such.
    pub(crate) fn applied(self, steps: &[Step]) -> Result<Vec<Step>, &'static str> {
        let better = match self {
            Self::MemoryFirst(part) => memory_first(steps, part),
            Self::SplitIrqchip => split(steps),
            Self::VcpusTogether => together(steps),
        };
        if better == steps {
            Err("the program makes the calls in that order already")
        } else {
            Ok(better)
        }
    }
}

fn not_replayed(trace: &Trace, stall: &Stall) -> &'static str {
    let call = number(trace, stall).map(|call| &trace.calls[call]);
    if call.is_some_and(|call| trace.vm() != vm_of(call.on.as_ref())) {
        return "only one VM is replayed, and the call is on another VM";
    }
    match trace.recorder {
        Recorder::Tracefs => {
            "too little of the call was recorded to repeat it: --recorder ptrace records more"
        }
        Recorder::Ptrace | Recorder::PtraceEveryCall => "the call cannot be replayed",
    }
}

/// The step that a wait is about, where it is a call that is replayed.
pub(crate) fn step_of<'a>(trace: &Trace, script: &'a Script, stall: &Stall) -> Option<&'a Step> {
    let call = number(trace, stall)?;
    script.steps.iter().find(|step| step.call == call)
}

/// Which of the trace's calls a wait is, where it is one.
fn number(trace: &Trace, stall: &Stall) -> Option<usize> {
    let mut same = (0..trace.calls.len()).filter(|call| trace.calls[*call].name == stall.what);
    same.nth(stall.nth?)
}

/// Each keeps the pause before it, so that the program does as much of its own; within a rank the order stays.
fn memory_first(steps: &[Step], part: Part) -> Vec<Step> {
    let mut better = steps.to_vec();
    let (Some(first), Some(last)) = (
        steps.iter().position(|step| step.part == part),
        steps.iter().rposition(|step| step.part == part),
    ) else {
        return better;
    };
    better[first..=last].sort_by_key(|step| match &step.act {
        Act::CreateVm => 0,
        act if act.is_memory() => 1,
        // Without a controller before them vCPUs and irqfds are refused, or get none.
        Act::Irqchip | Act::SplitIrqchip => 2,
        Act::Vcpu(_) | Act::Vcpus(_) => 3,
        Act::Run(_) => 5,
        _ => 4,
    });
    better
}

fn split(steps: &[Step]) -> Vec<Step> {
    let other = |step: &Step| {
        let act = match &step.act {
            Act::Irqchip => Act::SplitIrqchip,
            Act::Pit => return None,
            act => act.clone(),
        };
        Some(Step { act, ..step.clone() })
    };
    steps.iter().filter_map(other).collect()
}

/// All that are created before the first run, where the first one was.
fn together(steps: &[Step]) -> Vec<Step> {
    let id = |step: &Step| match step.act {
        Act::Vcpu(id) if step.part == Part::Start => Some(id),
        _ => None,
    };
    let ids: Vec<u32> = steps.iter().filter_map(id).collect();
    let mut left = (ids.len() > 1).then_some(ids);
    let one_alone = left.is_none();
    let other = |step: &Step| match id(step) {
        Some(_) if !one_alone => Some(Step { act: Act::Vcpus(left.take()?), ..step.clone() }),
        _ => Some(step.clone()),
    };
    steps.iter().filter_map(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Call, Cause, Object};

    fn steps(acts: &[(Act, Part)]) -> Vec<Step> {
        let step = |(call, (act, part)): (usize, &(Act, Part))| Step {
            act: act.clone(),
            pause: call as u64,
            part: *part,
            call,
        };
        acts.iter().enumerate().map(step).collect()
    }

    fn slot(slot: u32) -> Act {
        Act::Slot { slot, guest: u64::from(slot) << 30, size: 4096, flags: 0 }
    }

    /// A life in which devices come first.
    fn devices_first() -> Vec<Step> {
        use Part::{Close, Start};
        steps(&[
            (Act::CreateVm, Start),
            (Act::Irqchip, Start),
            (Act::Pit, Start),
            (slot(0), Start),
            (Act::Vcpu(0), Start),
            (Act::Routing(24), Start),
            (Act::Vcpu(1), Start),
            (slot(1), Start),
            (Act::Run(0), Start),
            (Act::Coalesced { address: 0, size: 8, is_there: false }, Close),
            (Act::DeleteSlot { slot: 1 }, Close),
        ])
    }

    fn order(steps: &[Step]) -> Vec<usize> {
        steps.iter().map(|step| step.call).collect()
    }

    #[test]
    fn memory_comes_first_then_the_controller_then_vcpus_and_nothing_is_lost() {
        let better = Remedy::MemoryFirst(Part::Start).applied(&devices_first()).unwrap();
        assert_eq!(order(&better), [0, 3, 7, 1, 4, 6, 2, 5, 8, 9, 10]);
        // As much passes between them all together.
        assert!(better.iter().all(|step| step.pause == step.call as u64));
        let close = Remedy::MemoryFirst(Part::Close).applied(&devices_first()).unwrap();
        assert_eq!(order(&close), [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 9]);
    }

    #[test]
    fn a_run_stays_behind_what_another_thread_has_registered_meanwhile() {
        use Part::Start;
        let acts = [Act::CreateVm, Act::Irqchip, Act::Run(0), Act::Routing(24), slot(0)];
        let better = Remedy::MemoryFirst(Start).applied(&steps(&acts.map(|act| (act, Start))));
        assert_eq!(order(&better.unwrap()), [0, 4, 1, 3, 2]);
    }

    #[test]
    fn a_life_that_is_in_the_better_order_has_no_other() {
        let better = Remedy::MemoryFirst(Part::Start).applied(&devices_first()).unwrap();
        assert!(Remedy::MemoryFirst(Part::Start).applied(&better).is_err());
        assert!(Remedy::SplitIrqchip.applied(&steps(&[(Act::CreateVm, Part::Start)])).is_err());
        let alone = steps(&[(Act::CreateVm, Part::Start), (Act::Vcpu(0), Part::Start)]);
        assert!(Remedy::VcpusTogether.applied(&alone).is_err());
    }

    #[test]
    fn a_split_irqchip_takes_the_place_of_the_full_one_and_its_timer() {
        let better = Remedy::SplitIrqchip.applied(&devices_first()).unwrap();
        assert_eq!(order(&better), [0, 1, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(better[1].act, Act::SplitIrqchip);
    }

    #[test]
    fn vcpus_are_created_at_one_time_where_the_first_was() {
        let better = Remedy::VcpusTogether.applied(&devices_first()).unwrap();
        assert_eq!(order(&better), [0, 1, 2, 3, 4, 5, 7, 8, 9, 10]);
        assert_eq!(better[4].act, Act::Vcpus(vec![0, 1]));
        // One that comes when others run is none of them.
        let later = [devices_first(), steps(&[(Act::Vcpu(2), Part::Meanwhile)])].concat();
        let better = Remedy::VcpusTogether.applied(&later).unwrap();
        assert_eq!(better[4].act, Act::Vcpus(vec![0, 1]));
        assert_eq!(better.last().unwrap().act, Act::Vcpu(2));
    }

    #[test]
    fn where_the_order_of_calls_does_not_matter_there_is_nothing_to_replay() {
        let stall = |code: &str| Stall {
            cause: Some(Cause { code: code.into(), ..Cause::default() }),
            ..Stall::default()
        };
        for code in
            ["own-sleep", "image-loading", "huge-page-worker", "slot-delete", "grace-period"]
        {
            let found = Remedy::of(&Trace::default(), &Script::default(), &stall(code));
            assert!(found.is_err(), "{code}");
        }
        let why = |recorder| {
            let trace = Trace { recorder, ..Trace::default() };
            Remedy::of(&trace, &Script::default(), &stall("grace-period")).unwrap_err()
        };
        assert!(why(Recorder::Tracefs).ends_with("--recorder ptrace records more"));
        assert!(why(Recorder::Ptrace).ends_with("cannot be replayed"));
        let vm = |vm| Some(Object::Vm { vm });
        let calls =
            [vm(0), vm(1)].map(|on| Call { name: "KVM_IRQFD".into(), on, ..Call::default() });
        let run = Call {
            name: "KVM_RUN".into(),
            on: Some(Object::Vcpu { vm: 1, id: 0 }),
            ..Call::default()
        };
        let trace = Trace { calls: [&calls[..], &[run]].concat(), ..Trace::default() };
        let why = |nth| {
            let stall = Stall { what: "KVM_IRQFD".into(), nth: Some(nth), ..stall("grace-period") };
            Remedy::of(&trace, &Script::default(), &stall).unwrap_err()
        };
        assert!(why(0).ends_with("on another VM") && !why(1).ends_with("on another VM"));
    }
}
