//! A VM outlives the process that made it, since another process holds a descriptor of it: one that it was forked with, or
//! was sent.
//!
//! While the first process is there it may hold the VM itself, by a vCPU's descriptor or its mapping. So nothing is said
//! before that process is gone.

use mayfly_record::units::duration;

use super::likely::likely;
use crate::record::{Call, Object, Stall, Trace};

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let mut made = trace.calls.iter().filter(|call| call.name == "KVM_CREATE_VM");
    // VMs are numbered as they are made; of more than one it is not known which is whose.
    let (Some(first), None) = (made.next(), made.next()) else { return Vec::new() };
    elsewhere(trace, first).into_iter().collect()
}

fn elsewhere(trace: &Trace, made: &Call) -> Option<Stall> {
    let maker = trace.processes.iter().find(|process| process.pid == made.pid)?;
    let gone = maker.gone?;
    let gives_up = |call: &&Call| {
        matches!(call.on, Some(Object::Vm { .. } | Object::Vcpu { .. } | Object::Device { .. }))
            && ["close", "close_range"].contains(&call.name.as_str())
            && call.pid != made.pid
            && call.succeeded()
    };
    let last = trace.calls.iter().filter(gives_up).max_by_key(|call| call.at)?;
    let took = last.at.saturating_sub(gone);
    if took < trace.least() {
        return None;
    }
    let evidence = vec![
        format!("process {}, which created the VM, had ended {} before", made.pid, duration(took)),
        format!("process {} then closed a descriptor of the VM", last.pid),
    ];
    let what = "another process holds the VM's descriptor";
    let remedy = "close the VM's descriptors in forked processes, and send none to a process that outlives the VM";
    let cause = Some(likely("held-elsewhere", what, remedy, evidence));
    let what = "a VM whose process has ended".to_owned();
    Some(Stall { what, tid: last.tid, at: gone, took, cause, ..Stall::default() })
}
