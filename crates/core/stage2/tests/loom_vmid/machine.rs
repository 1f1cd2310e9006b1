//! A machine whose CPUs walk whenever somebody looks, and which fails the model where one finds what is not its root's.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use mayfly_platform::Model;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{VcpuMark, VmidTag, Vmids};

use super::world;

pub(crate) const NUMBERS: usize = 3;
const CPUS: usize = 3;

/// The CPU that [`take`] leaves.
pub(crate) const TAKER: u32 = 2;

#[derive(Default)]
struct Cpu {
    /// What its translation base register names, and whose tables it walks with.
    named: Option<(Vmid, u32, Arc<AtomicU64>, VcpuMark)>,
    /// What its TLB holds under each number.
    tlb: [Option<Translation>; NUMBERS],
}

#[derive(Clone, Copy)]
struct Translation {
    root: u32,
    version: u64,
    vcpu: VcpuMark,
}

impl Cpu {
    fn walk(&mut self) {
        if let Some((vmid, root, table, vcpu)) = &self.named {
            self.tlb[index(*vmid)].get_or_insert_with(|| Translation {
                root: *root,
                version: table.load(Ordering::Relaxed),
                vcpu: *vcpu,
            });
        }
    }
}

#[derive(Clone)]
struct Cpus(std::sync::Arc<Mutex<[Cpu; CPUS]>>);

impl Cpus {
    /// Has them all walk, before and after.
    fn with<T>(&self, what: impl FnOnce(&mut [Cpu; CPUS]) -> T) -> T {
        let mut cpus = self.0.lock().unwrap();
        cpus.iter_mut().for_each(Cpu::walk);
        let result = what(&mut cpus);
        cpus.iter_mut().for_each(Cpu::walk);
        result
    }
}

// SAFETY: shared through loom's mutex alone.
unsafe impl Send for Cpus {}
// SAFETY: as above.
unsafe impl Sync for Cpus {}

impl world::Hooks for Cpus {
    fn forget(&self) {
        self.with(|cpus| cpus.iter_mut().for_each(|cpu| cpu.tlb = [None; NUMBERS]));
    }

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        self.with(|cpus| {
            cpus[cpu as usize].named.take_if(|named| named.0 == vmid);
        });
    }
}

pub(crate) struct Machine {
    pub(crate) vmids: Vmids,
    cpus: Cpus,
    /// Written by whoever is active under a number: loom fails the model where two are, or are not ordered.
    pub(crate) exclusive: [UnsafeCell<u32>; NUMBERS],
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

pub(crate) struct Root {
    id: u32,
    pub(crate) tag: VmidTag,
    pub(crate) table: Arc<AtomicU64>,
}

pub(crate) fn index(vmid: Vmid) -> usize {
    usize::from(vmid.0) - 1
}

impl Machine {
    /// Of so many bits, and as many CPUs as that allows, up to three.
    pub(crate) fn new(bits: u32) -> Arc<Self> {
        let cpus = Cpus(std::sync::Arc::new(Mutex::new(Default::default())));
        let mmu = world::mmu(Model::new(), (CPUS as u32).min((1 << bits) - 1), cpus.clone());
        Arc::new(Self {
            // SAFETY: the machine's only ones.
            vmids: unsafe { Vmids::try_new(mmu, bits) }.unwrap(),
            cpus,
            exclusive: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    pub(crate) fn root(&self, id: u32) -> Arc<Root> {
        Arc::new(Root { id, tag: self.vmids.tag().unwrap(), table: Arc::new(AtomicU64::new(0)) })
    }

    /// `cpu`, on which nobody else is, goes into the guest.
    pub(crate) fn enter(&self, cpu: u32, root: &Arc<Root>, vcpu: VcpuMark) -> Vmid {
        // SAFETY: no other thread of a model is on this CPU.
        let active = unsafe { root.tag.activate(cpu, vcpu) };
        self.cpus.with(|cpus| {
            let cpu = &mut cpus[cpu as usize];
            cpu.named = Some((active.vmid, root.id, Arc::clone(&root.table), vcpu));
            if active.flush {
                cpu.tlb[index(active.vmid)] = None;
            }
        });
        active.vmid
    }

    /// A guest access on a CPU that is active on `root`.
    pub(crate) fn access(&self, cpu: u32, vmid: Vmid, root: &Root, vcpu: VcpuMark) {
        let used = self.cpus.with(|cpus| cpus[cpu as usize].tlb[index(vmid)].unwrap());
        assert_eq!(used.root, root.id, "a translation of another root");
        assert_eq!(used.vcpu, vcpu, "a translation of another vCPU");
    }

    /// Runs on `root`, which no other CPU does.
    pub(crate) fn run_alone(&self, cpu: u32, root: &Arc<Root>) -> Vmid {
        let vcpu = self.vmids.vcpu();
        let vmid = self.enter(cpu, root, vcpu);
        // SAFETY: loom checks it.
        self.exclusive[index(vmid)].with_mut(|cell| unsafe { *cell = root.id });
        self.access(cpu, vmid, root, vcpu);
        // SAFETY: loom checks it.
        self.exclusive[index(vmid)].with(|cell| assert_eq!(unsafe { *cell }, root.id));
        vmid
    }

    pub(crate) fn run_alone_in_thread(
        this: &Arc<Self>,
        cpu: u32,
        root: &Arc<Root>,
    ) -> thread::JoinHandle<Vmid> {
        let (machine, root) = (Arc::clone(this), Arc::clone(root));
        thread::spawn(move || machine.run_alone(cpu, &root))
    }

    pub(crate) fn change_table(&self, root: &Root) -> Option<Vmid> {
        root.table.store(1, Ordering::Relaxed);
        let vmid = self.vmids.assigned(&root.tag);
        self.invalidate(vmid);
        vmid
    }

    pub(crate) fn invalidate(&self, vmid: Option<Vmid>) {
        if let Some(vmid) = vmid {
            self.cpus.with(|cpus| cpus.iter_mut().for_each(|cpu| cpu.tlb[index(vmid)] = None));
        }
    }

    pub(crate) fn retire(&self, root: &Root) {
        // SAFETY: models retire a root on which no CPU is any more.
        unsafe { self.vmids.leave(&root.tag) };
        let vmid = self.vmids.assigned(&root.tag);
        self.invalidate(vmid);
        self.cpus.with(|cpus| {
            for cpu in cpus {
                assert!(cpu.named.as_ref().is_none_or(|named| named.1 != root.id));
                let mut held = cpu.tlb.iter().flatten();
                assert!(held.all(|held| held.root != root.id), "a translation was left");
            }
        });
        // SAFETY: as above, and nothing is left under its number.
        unsafe { self.vmids.retire(&root.tag) };
    }

    /// Asserts that a CPU names `root`, as the one that was sent there last.
    pub(crate) fn assert_names(&self, cpu: u32, root: &Root) {
        self.cpus.with(|cpus| {
            let named = cpus[cpu as usize].named.as_ref().map(|named| named.1);
            assert_eq!(named, Some(root.id), "a CPU was taken from the root that it is on");
        });
    }

    /// Whether a CPU names any root.
    pub(crate) fn names_any(&self, cpu: u32) -> bool {
        self.cpus.with(|cpus| cpus[cpu as usize].named.is_some())
    }

    pub(crate) fn assert_up_to_date(&self, root: &Root) {
        self.cpus.with(|cpus| {
            for held in cpus.iter().flat_map(|cpu| cpu.tlb.iter().flatten()) {
                assert!(held.root != root.id || held.version == 1, "a translation was missed");
            }
        });
    }
}

/// Gives numbers to so many roots, and leaves translations of theirs behind.
pub(crate) fn take(machine: &Machine, count: usize) {
    for id in 0..count {
        machine.run_alone(TAKER, &machine.root(100 + id as u32));
    }
}
