//! A VM's creation, its first entry, and its end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mayfly_kvm::{Error, GuestMemory, IoEvent, Kvm, MemoryFlags, Payload, Vm};
use mayfly_record::{ResultRow, Samples};

use super::shared::{Shared, Yield, measured};
use crate::row::samples;

pub(super) const NAME: &str = "life";

pub(super) const METRICS: [&str; 5] = ["create", "first_run", "second_run", "close", "close_bare"];

const VMS: usize = 7;

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
    let event = IoEvent::new(0xd000_0000, 4, None)?;
    let mut of = [const { Vec::new() }; METRICS.len()];
    for number in 0..=VMS {
        if Instant::now() >= until {
            break;
        }
        sleep(apart);
        let (vm, create) = timed(|| Vm::create(kvm))?;
        vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
        vm.create_irqchip()?;
        let mut vcpu = vm.create_vcpu(0)?;
        vm.register_ioeventfd(&event)?;
        vm.finish_irqchip()?;
        vcpu.load(&payload)?;
        let first = timed(|| vcpu.run_to_exit())?.1;
        let second = timed(|| vcpu.run_to_exit())?.1;
        // What the registration has armed is over: its wait is not the end's.
        sleep(apart);
        let close = took(|| vm.destroy(vec![vcpu]));
        sleep(apart);
        let bare = Vm::create(kvm)?;
        let close_bare = took(|| bare.destroy(Vec::new()));
        // The first warms up.
        if number > 0 {
            for (samples, took) in of.iter_mut().zip([create, first, second, close, close_bare]) {
                samples.push(took);
            }
        }
    }
    let with = |row: ResultRow, (name, of): (&str, &Vec<u64>)| row.metric(name, &samples(of));
    Ok(METRICS.into_iter().zip(&of).fold(row, with))
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
