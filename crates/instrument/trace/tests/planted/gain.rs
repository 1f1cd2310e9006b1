//! What remedies gain, by replay.

use mayfly_record::Host;
use mayfly_trace::{Benefit, Cause, Gain, Stall, Trace, measure_gains};

use crate::{is_soon_so, launch, traced};

/// What the remedy of a trace's grace period gains; `None` where it had none to wait for.
fn of_grace_period(trace: &mut Trace) -> Option<Gain> {
    measure_gains(trace, &mut |ways| assert!(ways > 0));
    let causes = trace.stalls.iter().filter_map(|stall| stall.cause.as_ref());
    let mut causes = causes.filter(|cause| cause.code == "grace-period");
    causes.next().map(|cause| cause.gain.clone().expect("measured, or why not"))
}

pub(crate) fn devices_first() {
    let host = Host::gather(["test".to_owned()]);
    if !host.kernel.starts_with("6.18.") {
        return println!("not run: Linux {} may not defer what it frees", host.kernel);
    }
    is_soon_so(|| {
        // It sleeps before its vCPUs: there the grace period may run, and the close need not wait for it either.
        let mut trace = traced(&launch(&["irqchip=1", "vcpus=2", "sleep=12"]));
        let Some(gain) = of_grace_period(&mut trace) else { return false };
        let Gain::Measured(found) = gain else { panic!("{gain}") };
        let replay = trace.replay.as_ref().unwrap();
        // The VM, its irqchip, a slot, two vCPUs, a run.
        assert_eq!((replay.calls, &replay.stands_in), (6, &Vec::new()), "{replay}");
        assert!(replay.left_out.iter().any(|one| one == "KVM_SET_REGS"), "{replay}");
        // What is said of the parts is what was measured of them.
        assert!(found.whole.recorded >= found.start.recorded.min(found.close.recorded));
        assert!(found.rounds >= 6);
        let json = serde_json::to_value(&trace).unwrap();
        let stalls = json["stalls"].as_array().unwrap();
        let of = |stall: &serde_json::Value| stall["cause"]["gain"]["measured"]["rounds"].as_u64();
        assert!(stalls.iter().any(|stall| of(stall) == Some(found.rounds)), "{json}");
        assert_eq!(serde_json::from_value::<Trace>(json).unwrap(), trace);
        found.benefit == Benefit::Gain && found.start.saved > 0 && found.whole.saved > 0
    });
}

/// A wait as of devices that come first, though they do not.
pub(crate) fn memory_first() {
    let mut trace = traced(&launch(&["unregister=1"]));
    let memory = trace.calls.iter().find(|call| call.name == "KVM_SET_USER_MEMORY_REGION").unwrap();
    let cause = Cause { code: "grace-period".into(), ..Cause::default() };
    let stall = Stall {
        what: memory.name.clone(),
        nth: Some(0),
        took: 8_000_000,
        cause: Some(cause),
        ..Stall::default()
    };
    trace.stalls = vec![stall];
    measure_gains(&mut trace, &mut |_| panic!("there is no better order"));
    let gain = trace.stalls[0].cause.as_ref().unwrap().gain.as_ref().unwrap();
    assert!(gain.to_string().contains("in that order already"), "{gain}");
    assert_eq!(trace.replay, None);
}

pub(crate) fn failing_call() {
    let mut trace = traced(&launch(&["irqchip=1"]));
    let is_memory = |name: &str| name == "KVM_SET_USER_MEMORY_REGION";
    let memory = trace.calls.iter_mut().find(|call| is_memory(&call.name)).unwrap();
    memory.arguments.insert("guest".to_owned(), 1);
    let cause = Cause { code: "grace-period".into(), ..Cause::default() };
    let what = memory.name.clone();
    trace.stalls = vec![Stall { what, nth: Some(0), cause: Some(cause), ..Stall::default() }];
    let gain = of_grace_period(&mut trace).unwrap();
    let said = gain.to_string();
    assert!(matches!(gain, Gain::NotMeasured(_)) && !said.contains('\n'), "{said}");
    assert!(
        said.contains("(KVM_SET_USER_MEMORY_REGION) failed: ") && said.contains("Invalid argument"),
        "{said}"
    );
}
