//! vCPUs are created one after the other by one thread.

use mayfly_record::units::duration;

use super::evidence::own;
use super::likely::likely;
use crate::record::{Call, Cause, Object, Stall, Trace};

/// Fewer are no matter.
const MANY: usize = 8;

/// All of a VM's vCPUs, where one thread made them and that took long.
pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let Some(made) = one_by_one(trace) else { return Vec::new() };
    let (first, last) = (made[0], made[made.len() - 1]);
    let took = in_calls(&made);
    let what = format!("{} x KVM_CREATE_VCPU", made.len());
    let (tid, at, cause) = (first.tid, first.at, Some(cause(&made, last)));
    vec![Stall { what, tid, at, took, cause, ..Stall::default() }]
}

/// One that is long by itself is a part of that.
pub(super) fn find_one(trace: &Trace, call: &Call) -> Option<Cause> {
    let made = one_by_one(trace).filter(|_| call.name == "KVM_CREATE_VCPU")?;
    Some(cause(&made, made[made.len() - 1]))
}

fn cause(made: &[&Call], last: &Call) -> Cause {
    let evidence = vec![
        format!(
            "one thread created {}, {} each",
            made.len(),
            duration(in_calls(made) / made.len() as u64)
        ),
        format!("{} from the first to the last", duration(last.end() - made[0].at)),
    ];
    likely(
        "vcpus-one-by-one",
        "vCPUs are created one after the other",
        "create each vCPU on its own thread: most of KVM_CREATE_VCPU needs no lock of the VM's",
        evidence,
    )
}

fn in_calls(made: &[&Call]) -> u64 {
    made.iter().map(|one| own(one)).sum()
}

/// The calls, where there are many by one thread, and their time is worth a line.
fn one_by_one(trace: &Trace) -> Option<Vec<&Call>> {
    let vm = trace.vm()?;
    let made: Vec<&Call> = trace
        .calls
        .iter()
        .filter(|call| call.name == "KVM_CREATE_VCPU" && call.on == Some(Object::Vm { vm }))
        .collect();
    let tid = made.first()?.tid;
    let alone = made.iter().all(|call| call.tid == tid);
    (alone && made.len() >= MANY && in_calls(&made) >= trace.least()).then_some(made)
}
