//! A VM's start and its end, with devices first, and in the order that the builder takes on this host.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mayfly_kvm::{
    Error, GuestMemory, IoEvent, Irqchip, Kvm, MemoryFlags, Plan, Reclaimer, Vcpu, Vm, VmBuilder,
    Waits,
};
use mayfly_record::{ResultRow, Samples};

use super::life::{VCPUS, events, none, timed, took};
use super::shared::{Shared, Yield, measured};
use crate::row::row;

pub(super) const NAME: &str = "order";

pub(super) const ROWS: [&str; 4] =
    ["devices-first-full", "builder-full", "devices-first-split", "builder-split"];

/// VMs of each order.
const VMS: u32 = 7;

/// What is measured of a start: until all vCPUs are there, the same without `KVM_CREATE_VM`, until the VM is closed, the
/// first and the last together, and until the builder's teardown has returned.
pub(super) const METRICS: [&str; 5] =
    ["start", "start_after_create", "close", "start_and_close", "teardown"];

pub(super) fn probe(shared: &Shared, until: Instant) -> Yield {
    let Shared { kvm, tick, waits } = shared;
    let waits = waits.get().cloned().unwrap_or_default();
    let mut rows = Vec::new();
    let [full, full_built, split, split_built] = ROWS;
    let kinds = [(full, full_built, Irqchip::Full), (split, split_built, Irqchip::Split)];
    let here = if cfg!(target_arch = "x86_64") { &kinds[..] } else { &kinds[..1] };
    for &(first, builder, irqchip) in here {
        let memory = GuestMemory::map_populated(2 << 20);
        let starts = memory.and_then(|memory| starts(kvm, &waits, irqchip, &memory, *tick, until));
        match starts {
            Ok((plan, [devices_first, built])) => {
                rows.push(measured(first, |row| Ok(with(row, &devices_first))));
                let plan_said = plan.to_string();
                let with_plan = |row| Ok(with(row, &built).param("order", plan_said));
                let built = measured(builder, with_plan);
                let waits = u64::try_from(plan.waits().as_nanos()).unwrap_or(u64::MAX);
                rows.push(built.counter("planned_wait_ns", waits));
            }
            Err(error) => rows.push(row(builder).skipped(error.to_string())),
        }
    }
    Yield { rows, ..Yield::default() }
}

fn with(row: ResultRow, samples: &[Samples; METRICS.len()]) -> ResultRow {
    METRICS.into_iter().zip(samples).fold(row, |row, (name, samples)| row.metric(name, samples))
}

/// Starts VMs in turn with devices first, and as the builder does, at random moments of a tick: whose end waits, ends with a
/// tick.
fn starts(
    kvm: &Kvm,
    waits: &Waits,
    irqchip: Irqchip,
    memory: &GuestMemory,
    tick: Duration,
    until: Instant,
) -> Result<(Plan, [[Samples; METRICS.len()]; 2]), Error> {
    let builder = || -> Result<VmBuilder<'_>, Error> {
        let builder = VmBuilder::new(kvm, waits).irqchip(irqchip).vcpus(VCPUS).region(0, memory);
        events()?.into_iter().try_fold(builder, |builder, event| Ok(builder.ioeventfd(event)))
    };
    let plan = builder()?.plan();
    let reclaimer = Reclaimer::new(1);
    let mut all = [none(), none()];
    for number in 0..VMS {
        if Instant::now() >= until {
            break;
        }
        // A part of a tick of its own for each.
        let phase = tick * number / VMS;
        sleep(tick * 2 + phase);
        let events = events()?;
        let (vm, create) = timed(|| Vm::create(kvm))?;
        let (vcpus, rest) = timed(|| devices_first(&vm, irqchip, &events, memory))?;
        sleep(tick * 4);
        let close = took(|| vm.destroy(vcpus));
        record(&mut all[0], [create + rest, rest, close, create + rest + close]);

        sleep(tick * 2 + phase);
        let ready = builder()?;
        let (built, start) = timed(|| ready.start())?;
        let rest = mayfly_record::nanoseconds(built.timeline.after_creation());
        sleep(tick * 4);
        let ended = Instant::now();
        let ending = built.teardown(&reclaimer);
        let teardown = ended.elapsed();
        ending.wait();
        let close = mayfly_record::nanoseconds(ended.elapsed());
        record(&mut all[1], [start, rest, close, start + close]);
        all[1][4].record(teardown);
    }
    Ok((plan, all))
}

fn record(samples: &mut [Samples; METRICS.len()], times: [u64; 4]) {
    for (samples, time) in samples.iter_mut().zip(times) {
        samples.record_ns(time);
    }
}

fn devices_first(
    vm: &Vm,
    irqchip: Irqchip,
    events: &[IoEvent],
    memory: &GuestMemory,
) -> Result<Vec<Vcpu>, Error> {
    if irqchip == Irqchip::Split { vm.split_irqchip() } else { vm.create_irqchip() }?;
    events.iter().try_for_each(|event| vm.register_ioeventfd(event))?;
    vm.set_memory_region(0, 0, memory, MemoryFlags::default())?;
    let vcpus = (0..VCPUS).map(|id| vm.create_vcpu(id)).collect::<Result<_, _>>()?;
    vm.finish_irqchip()?;
    Ok(vcpus)
}
