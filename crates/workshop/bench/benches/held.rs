//! Memory that is held because it is freed later. `docs/bench.md` explains the rows.

use std::sync::Arc;

use mayfly_bench::heap::{Counting, in_use, taken_by};
use mayfly_bench::{bus, sections};
use mayfly_iobus::IoBus;
use mayfly_machine::MachineWorker;
use mayfly_platform::Host;
use mayfly_srcu::{Config, Srcu};
use vm_device::device_manager::IoManager;

#[global_allocator]
static HEAP: Counting = Counting;

const DEVICES: u64 = bus::MANY;

/// What becomes of the version of a bus that a registration has replaced.
#[derive(Clone, Copy)]
enum Old {
    Deferred,
    WaitedFor,
}

fn main() {
    let devices: Vec<bus::Device> = (0..DEVICES).map(bus::device).collect();
    println!("\nbytes of the heap, while {DEVICES} devices are registered on a bus\n");
    line("", "at most", "when done", "when freed", "deferred");
    for (what, old, has_worker, is_read) in [
        ("deferred, no reader inside", Old::Deferred, false, false),
        ("deferred, a worker, no reader inside", Old::Deferred, true, false),
        ("deferred, a reader inside", Old::Deferred, false, true),
        ("waited for, no reader inside", Old::WaitedFor, false, false),
    ] {
        let host = Arc::new(Host::new());
        let worker = MachineWorker::spawn(host.clone()).expect("the system has a thread for it");
        let worker = has_worker.then(|| Arc::clone(worker.worker()));
        let config = Config { worker, ..Config::default() };
        let domain = Srcu::try_new(host, config).expect("a domain takes little memory");
        let reader = sections::reader(&domain);
        let bus = IoBus::try_new(&domain, Arc::new(Host::new())).expect("it takes little memory");
        let section = is_read.then(|| reader.lock());
        let before = in_use();
        let [most, done] = taken_by(|| register(&bus, &devices, old));
        drop(section);
        domain.barrier();
        let deferred = domain.stats().peak_deferred.to_string();
        line(what, &kib(most), &kib(done), &kib(in_use().saturating_sub(before)), &deferred);
    }
    let mut manager = IoManager::new();
    let [most, done] = taken_by(|| {
        for (index, device) in (0..).zip(&devices) {
            bus::register_with_vm_device(&mut manager, index, device.clone());
        }
    });
    line("vm-device IoManager, without readers", &kib(most), &kib(done), "", "");
}

fn register(bus: &IoBus<bus::Device>, devices: &[bus::Device], old: Old) {
    for (index, device) in (0..).zip(devices) {
        let replaced = bus.insert(bus::range(index), device.clone());
        let Ok(replaced) = replaced else { panic!("no two devices overlap") };
        match old {
            Old::Deferred => replaced.defer(),
            Old::WaitedFor => drop(replaced.synchronize()),
        }
    }
}

fn kib(bytes: usize) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}

fn line(what: &str, most: &str, done: &str, freed: &str, deferred: &str) {
    let line = format!("{what:<40} {most:>12} {done:>12} {freed:>12} {deferred:>9}");
    println!("{}", line.trim_end());
}
