//! VMIDs: their rules, one by one and against a naive model, and threads that contend for few of them.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod model;
mod rules;
mod threads;
mod world;

use std::sync::{Arc, Mutex};

use mayfly_platform::Host;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{VcpuMark, VmidTag, Vmids};

/// What was asked of the CPUs.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    /// How often all VMIDs were forgotten.
    forgotten: usize,
    vacated: Vec<(u32, Vmid)>,
    /// How many CPUs were asked at once, each time.
    at_once: Vec<usize>,
}

impl Asked {
    fn forgotten(&self) -> usize {
        self.0.lock().unwrap().forgotten
    }

    fn take_vacated(&self) -> Vec<(u32, Vmid)> {
        std::mem::take(&mut self.0.lock().unwrap().vacated)
    }

    fn take_at_once(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap().at_once)
    }

    /// Of so many bits, for so many CPUs.
    fn vmids(&self, bits: u32, cpus: u32) -> Vmids {
        // SAFETY: the only ones of this machine, which has no CPU.
        unsafe { Vmids::try_new(world::mmu(Host::new(), cpus, self.clone()), bits) }.unwrap()
    }
}

impl world::Hooks for Asked {
    fn forget(&self) {
        self.0.lock().unwrap().forgotten += 1;
    }

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        self.0.lock().unwrap().vacated.push((cpu, vmid));
    }

    fn vacate_all(&self, cpus: &mut dyn Iterator<Item = u32>, vmid: Vmid) {
        let asked: Vec<_> = cpus.map(|cpu| (cpu, vmid)).collect();
        let mut log = self.0.lock().unwrap();
        log.at_once.push(asked.len());
        log.vacated.extend(asked);
    }
}

/// A CPU, and the one vCPU that runs there.
struct Cpu {
    number: u32,
    vcpu: VcpuMark,
}

impl Cpu {
    fn new(number: u32, vmids: &Vmids) -> Self {
        Self { number, vcpu: vmids.vcpu() }
    }

    fn run(&self, root: &VmidTag) -> Vmid {
        // SAFETY: no CPU keeps a translation.
        unsafe { root.activate(self.number, self.vcpu) }.vmid
    }
}
