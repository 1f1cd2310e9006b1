//! A VM's creation, its first entry, and its end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mayfly_kvm::{Error, GuestMemory, IoEvent, Kvm, MemoryFlags, Payload, Vcpu, Vm};
use mayfly_record::{ResultRow, Samples};

use super::shared::{Shared, Yield, measured};
use crate::row::samples;

pub(super) const NAME: &str = "life";

/// What is measured. `close` is the end of a VM that has all devices, some ticks after its last registration;
/// `close_at_once`, right after it; `close_bare`, that of a VM that has nothing.
pub(super) const METRICS: [&str; 6] =
    ["create", "first_run", "second_run", "close", "close_at_once", "close_bare"];

const VMS: usize = 7;

/// What VMs have, as a VMM with a few virtio devices makes them.
pub(super) const VCPUS: u32 = 2;
const IOEVENTFDS: u64 = 4;

/// Ticks between two lives: a lock that a move between control groups takes is cheap for a while after it was taken.
const APART: u32 = 7;

/// The most that they are apart, where ticks are long.
const LONGEST: Duration = Duration::from_millis(40);

pub(super) fn probe(shared: &Shared, until: Instant) -> Yield {
    let apart = (shared.tick * APART).min(LONGEST);
    let row = measured(NAME, |row| lives(&shared.kvm, apart, until, row));
    Yield { rows: vec![row], ..Yield::default() }
}

fn lives(kvm: &Kvm, apart: Duration, until: Instant, row: ResultRow) -> Result<ResultRow, Error> {
    let memory = GuestMemory::map_populated(4 << 20)?;
    Payload::install(&memory)?;
    let touch = Payload::FREE..Payload::FREE + 0x1000;
    let payload = Payload { touch, doorbell: None, port: 0x10 };
    let events = events()?;
    let mut of = [const { Vec::new() }; METRICS.len()];
    for number in 0..=VMS {
        if Instant::now() >= until {
            break;
        }
        sleep(apart);
        let (vm, create) = timed(|| Vm::create(kvm))?;
        let mut vcpus = equip(&vm, &memory, &events)?;
        vcpus[0].load(&payload)?;
        let first = timed(|| vcpus[0].run_to_exit())?.1;
        let second = timed(|| vcpus[0].run_to_exit())?.1;
        // What the registrations have started is over: its wait is not the end's.
        sleep(apart);
        let close = took(|| vm.destroy(vcpus));
        sleep(apart);
        let vm = Vm::create(kvm)?;
        let vcpus = equip(&vm, &memory, &events)?;
        let close_at_once = took(|| vm.destroy(vcpus));
        sleep(apart);
        let bare = Vm::create(kvm)?;
        let close_bare = took(|| bare.destroy(Vec::new()));
        let times = [create, first, second, close, close_at_once, close_bare];
        // The first warms up.
        if number > 0 {
            for (samples, time) in of.iter_mut().zip(times) {
                samples.push(time);
            }
        }
    }
    let with = |row: ResultRow, (name, of): (&str, &Vec<u64>)| row.metric(name, &samples(of));
    Ok(METRICS.into_iter().zip(&of).fold(row, with))
}

/// The ioeventfds of a VM.
pub(super) fn events() -> Result<Vec<IoEvent>, Error> {
    (0..IOEVENTFDS).map(|index| IoEvent::new(0xe000_0000 + index * 0x1000, 4, None)).collect()
}

/// Gives a VM memory, interrupt controllers, on x86-64 a timer, vCPUs and ioeventfds, which come last.
fn equip(vm: &Vm, memory: &GuestMemory, events: &[IoEvent]) -> Result<Vec<Vcpu>, Error> {
    vm.set_memory_region(0, 0, memory, MemoryFlags::default())?;
    vm.create_irqchip()?;
    if cfg!(target_arch = "x86_64") {
        vm.create_pit()?;
    }
    let vcpus = (0..VCPUS).map(|id| vm.create_vcpu(id)).collect::<Result<_, _>>()?;
    events.iter().try_for_each(|event| vm.register_ioeventfd(event))?;
    vm.finish_irqchip()?;
    Ok(vcpus)
}

/// What `work` gives, and the nanoseconds that it took.
pub(super) fn timed<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<(T, u64), Error> {
    let start = Instant::now();
    let done = work()?;
    Ok((done, mayfly_record::nanoseconds(start.elapsed())))
}

/// The nanoseconds that `work` takes, and not what becomes of what it gives.
pub(super) fn took<T>(work: impl FnOnce() -> T) -> u64 {
    let start = Instant::now();
    let _done = work();
    mayfly_record::nanoseconds(start.elapsed())
}

/// Nothing measured yet, so many times.
pub(super) fn none<const N: usize>() -> [Samples; N] {
    std::array::from_fn(|_| Samples::default())
}
