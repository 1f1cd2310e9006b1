use std::io::{Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_record::Limits;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::*;
use crate::replay::script::Script;

#[test]
fn what_a_call_takes_counts_once_where_it_came() {
    let mut pass = Pass::default();
    let parts = [(Part::Start, 1), (Part::Meanwhile, 20), (Part::Close, 300), (Part::Start, 4_000)];
    for (part, took) in parts {
        assert_eq!(pass.add(part, Duration::from_nanos(took)), took);
    }
    assert_eq!((pass.start, pass.meanwhile, pass.close, pass.whole()), (4_001, 20, 300, 4_321));
}

/// How a life of these acts ends.
fn lives(acts: &[Act]) -> Result<Memory, String> {
    let step = |act: &Act| Step { act: act.clone(), pause: 0, part: Part::Start, call: 0 };
    let steps: Vec<Step> = acts.iter().map(step).collect();
    let script = Script { steps: steps.clone(), ..Script::default() };
    let memory = Memory::of(&script, Limits::default())?;
    play(&Kvm::open().map_err(|why| why.to_string())?, &memory, &steps, 0)?;
    Ok(memory)
}

#[test]
fn each_act_is_done_so_that_one_that_needs_it_can_be_done_and_one_that_cannot_fails() {
    if Kvm::open().is_err() {
        let _ = writeln!(stderr(), "not run: there is no KVM here");
        return;
    }
    let slot = |slot, guest, size: u64| Act::Slot { slot, guest, size: size << 20, flags: 0 };
    let device = |change| {
        let (address, eventfd) = (0xd000_0000, 7);
        let device = Event { address, length: 4, value: None, is_port: false, eventfd };
        Act::IoEvent(device, change)
    };
    let with = |acts: &[Act]| lives(&[&[Act::CreateVm], acts].concat());
    let refused = |acts: &[Act]| with(acts).err().expect("it cannot be done");
    // A slot's size is set where it is new, and not while it is there.
    let (here, larger, gone) = (slot(0, 0, 2), slot(0, 0, 4), Act::DeleteSlot { slot: 0 });
    with(&[here.clone(), gone, larger.clone()]).unwrap();
    assert!(refused(&[here.clone(), larger]).contains("call 3 of 3 (KVM_SET_USER_MEMORY"));
    let (comes, goes) = (device(Change::Comes), device(Change::Goes));
    with(&[comes.clone(), goes, comes.clone()]).unwrap();
    assert!(refused(&[comes.clone(), comes]).contains("call 3 of 3 (KVM_IOEVENTFD) failed"));
    // All vCPUs of several are made.
    let several = Act::Vcpus(vec![0, 1, 2]);
    with(&[several.clone(), Act::Vcpu(3)]).unwrap();
    assert!(refused(&[several, Act::Vcpu(2)]).contains("call 3 of 3 (KVM_CREATE_VCPU) failed"));
    if cfg!(target_arch = "x86_64") {
        assert!(
            refused(&[Act::Irqchip, Act::Pit, Act::Pit]).contains("call 4 of 4 (KVM_CREATE_PIT2)")
        );
    }
    // The guest's code is where guests begin, wherever else there is memory.
    let run = [here, slot(1, 1 << 32, 2), Act::Vcpu(0), Act::Run(0)];
    let memory = with(&run).unwrap();
    let is_written = |slot| {
        let memory = memory.of_slot(slot, 2 << 20).unwrap();
        (0..2 << 20).step_by(8).any(|at| memory.read_u64(at).unwrap() != 0)
    };
    assert_eq!((is_written(0), is_written(1)), (true, false));
}

/// Ends a thread whichever way its test ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_another_has_the_processor_for_is_no_part_of_a_call() {
    // Both threads on one processor.
    let allowed = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    if sched_setaffinity(None, &one).is_err() {
        let _ = writeln!(stderr(), "not run: this thread may not choose its processor");
        return;
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = Ends(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let (begun, clock, before) = (Instant::now(), Clock::start(), queued());
        let waited = || Duration::from_nanos(queued() - before);
        while waited() < Duration::from_millis(5) && begun.elapsed() < Duration::from_secs(20) {
            std::hint::spin_loop();
        }
        // Whatever comes between two readings, more was waited than is known, and less taken.
        let (waited, took) = (waited(), clock.stop());
        drop(ends);
        if waited.is_zero() {
            let _ = writeln!(stderr(), "not run: this kernel does not count what threads wait");
        } else {
            assert!(took + waited <= begun.elapsed(), "{took:?}, and {waited:?} in the queue");
        }
    });
    sched_setaffinity(None, &allowed).unwrap();
}
