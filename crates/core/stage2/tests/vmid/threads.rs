//! Threads that contend for seven VMIDs on seven CPUs, with a software TLB that knows whose each translation is. The CPUs
//! walk speculatively from whatever root they were left on; and vCPUs, of which there are more, share them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::thread;

use mayfly_platform::Host;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{VcpuMark, VmidTag, Vmids};

use super::world;

const BITS: u32 = 3;
const CPUS: usize = 7;
const VCPUS: usize = 10;
const ROOTS: usize = 12;
const ENTRIES: usize = 6_000;

/// A translation: whose it is, and what its table said.
#[derive(Clone, Copy)]
struct Translation {
    root: u64,
    version: u64,
    vcpu: VcpuMark,
}

/// A root with a table of one entry.
struct Root {
    /// Never the same for two.
    id: u64,
    tag: VmidTag,
    table: Arc<AtomicU64>,
    /// What no vCPU may use an older version than: its invalidation is complete.
    oldest: AtomicU64,
}

impl Root {
    fn new(id: u64, vmids: &Vmids) -> Self {
        let (table, oldest) = (Arc::default(), AtomicU64::new(0));
        Self { id, tag: vmids.tag().unwrap(), table, oldest }
    }
}

/// What a CPU's translation base register names, and what its TLB holds.
#[derive(Default)]
struct Cpu {
    named: Option<(Vmid, u64, Arc<AtomicU64>, VcpuMark)>,
    tlb: HashMap<Vmid, Translation>,
}

impl Cpu {
    /// A walk from what the register names, guest or not.
    fn walk(&mut self) {
        if let Some((vmid, root, table, vcpu)) = &self.named {
            let version = table.load(Ordering::Relaxed);
            let walked = Translation { root: *root, version, vcpu: *vcpu };
            self.tlb.entry(*vmid).or_insert(walked);
        }
    }
}

#[derive(Default)]
struct Tlbs([Mutex<Cpu>; CPUS]);

impl Tlbs {
    fn forget(&self, vmid: Vmid) {
        for cpu in &self.0 {
            let mut cpu = cpu.lock().unwrap();
            cpu.tlb.remove(&vmid);
            cpu.walk();
        }
    }

    /// A guest access of a vCPU that is active on `root` under `vmid`.
    fn access(&self, cpu: usize, vmid: Vmid, root: &Root, vcpu: VcpuMark) {
        let oldest = root.oldest.load(Ordering::Acquire);
        let mut cpu = self.0[cpu].lock().unwrap();
        cpu.walk();
        let used = cpu.tlb[&vmid];
        drop(cpu);
        assert_eq!(used.root, root.id, "a translation of another root under {vmid:?}");
        assert!(used.version >= oldest, "a translation that was invalidated under {vmid:?}");
        assert_eq!(used.vcpu, vcpu, "a translation by another vCPU's tables under {vmid:?}");
    }
}

impl world::Hooks for Arc<Tlbs> {
    fn forget(&self) {
        for cpu in &self.0 {
            // So that whoever does not wait for the end is found out.
            thread::yield_now();
            let mut cpu = cpu.lock().unwrap();
            cpu.tlb.clear();
            cpu.walk();
        }
    }

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        let mut cpu = self.0[cpu as usize].lock().unwrap();
        cpu.named.take_if(|named| named.0 == vmid);
    }
}

struct System {
    tlbs: Arc<Tlbs>,
    /// Held by whoever runs a guest there.
    turns: [Mutex<()>; CPUS],
    vmids: Vmids,
    /// The lock is the reference that a vCPU holds on the root it runs on: a root is retired by who has it alone.
    roots: [RwLock<Root>; ROOTS],
    ids: AtomicU64,
    /// Which root is active under each VMID, and for how many vCPUs.
    active: Mutex<HashMap<Vmid, (u64, usize)>>,
    running: AtomicUsize,
    invalidated: AtomicBool,
}

impl System {
    fn new() -> Self {
        let tlbs = Arc::<Tlbs>::default();
        let mmu = world::mmu(Host::new(), CPUS as u32, Arc::clone(&tlbs));
        // SAFETY: the machine's only ones.
        let vmids = unsafe { Vmids::try_new(mmu, BITS) }.unwrap();
        Self {
            tlbs,
            turns: Default::default(),
            roots: std::array::from_fn(|id| RwLock::new(Root::new(id as u64, &vmids))),
            vmids,
            ids: AtomicU64::new(ROOTS as u64),
            active: Mutex::default(),
            running: AtomicUsize::new(VCPUS),
            invalidated: AtomicBool::new(false),
        }
    }

    fn entered(&self, vmid: Vmid, root: u64) {
        let mut active = self.active.lock().unwrap();
        let (owner, vcpus) = active.entry(vmid).or_insert((root, 0));
        assert_eq!(*owner, root, "{vmid:?} is active for two roots");
        *vcpus += 1;
    }

    fn leaving(&self, vmid: Vmid) {
        let mut active = self.active.lock().unwrap();
        let (_, vcpus) = active.get_mut(&vmid).unwrap();
        *vcpus -= 1;
        if *vcpus == 0 {
            active.remove(&vmid);
        }
    }

    /// A CPU that nobody runs on, or will not at the next moment.
    fn cpu(&self, first: usize) -> (usize, MutexGuard<'_, ()>) {
        (first..)
            .find_map(|cpu| match self.turns[cpu % CPUS].try_lock() {
                Ok(turn) => Some((cpu % CPUS, turn)),
                Err(TryLockError::Poisoned(poisoned)) => Some((cpu % CPUS, poisoned.into_inner())),
                Err(TryLockError::WouldBlock) => {
                    thread::yield_now();
                    None
                }
            })
            .unwrap()
    }

    fn run_vcpu(&self, vcpu: usize) {
        let _running = Running(&self.running);
        let mark = self.vmids.vcpu();
        let mut random = Random(vcpu as u64 + 1);
        for _ in 0..ENTRIES {
            let root =
                self.roots[random.below(ROOTS)].read().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..=random.below(4) {
                let (cpu, _turn) = self.cpu(random.below(CPUS));
                // SAFETY: the turn is this CPU's, and this thread has it.
                let active = unsafe { root.tag.activate(cpu as u32, mark) };
                let vmid = active.vmid;
                {
                    let mut state = self.tlbs.0[cpu].lock().unwrap();
                    state.named = Some((vmid, root.id, Arc::clone(&root.table), mark));
                    if active.flush {
                        state.tlb.remove(&vmid);
                    }
                }
                self.entered(vmid, root.id);
                // Now and then it does not exit while the others roll over several times.
                let stays = random.below(1000) == 0;
                for _ in 0..if stays { 200 } else { 3 } {
                    self.tlbs.access(cpu, vmid, &root, mark);
                    if stays {
                        thread::yield_now();
                    }
                }
                self.leaving(vmid);
            }
        }
    }

    /// Changes tables, and retires roots, while vCPUs run.
    fn run_host(&self) {
        let mut random = Random(u64::MAX);
        while self.running.load(Ordering::Relaxed) > 0 {
            let root = &self.roots[random.below(ROOTS)];
            if random.below(16) == 0 {
                let mut root = root.write().unwrap();
                // SAFETY: no vCPU has the root, whose lock is held.
                unsafe { self.vmids.leave(&root.tag) };
                if let Some(vmid) = self.vmids.assigned(&root.tag) {
                    self.tlbs.forget(vmid);
                }
                // SAFETY: as above, and it is forgotten.
                unsafe { self.vmids.retire(&root.tag) };
                *root = Root::new(self.ids.fetch_add(1, Ordering::Relaxed), &self.vmids);
                continue;
            }
            let root = root.read().unwrap();
            let version = root.table.load(Ordering::Relaxed) + 1;
            root.table.store(version, Ordering::Relaxed);
            if let Some(vmid) = self.vmids.assigned(&root.tag) {
                self.tlbs.forget(vmid);
                self.invalidated.store(true, Ordering::Relaxed);
            }
            root.oldest.store(version, Ordering::Release);
        }
    }
}

/// A vCPU that runs, until dropped: also when it fails, or the host would not end.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Xorshift (Marsaglia, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % bound
    }
}

#[test]
fn threads_that_contend_for_few_numbers_meet_no_translation_of_another_root_and_none_invalidated() {
    let system = System::new();
    thread::scope(|scope| {
        scope.spawn(|| system.run_host());
        for vcpu in 0..VCPUS {
            let system = &system;
            scope.spawn(move || system.run_vcpu(vcpu));
        }
    });
    assert!(system.vmids.rollovers() > 100, "{:?}", system.vmids);
    assert!(system.invalidated.load(Ordering::Relaxed));
}
