//! Threads that contend for seven VMIDs, with a software TLB that knows whose each translation is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;

use mayfly_platform::Host;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{VmidTag, Vmids};

use super::world;

const BITS: u32 = 3;
const VCPUS: usize = 6;
const ROOTS: usize = 12;
const ENTRIES: usize = 20_000;

/// A translation: whose it is, and what its table said.
#[derive(Clone, Copy)]
struct Translation {
    root: u64,
    version: u64,
}

/// A root with a table of one entry.
struct Root {
    /// Never the same for two.
    id: u64,
    tag: VmidTag,
    table: AtomicU64,
    /// What no vCPU may use an older version than: its invalidation is complete.
    oldest: AtomicU64,
}

impl Root {
    fn new(id: u64) -> Self {
        let (table, oldest) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { id, tag: VmidTag::new(), table, oldest }
    }
}

#[derive(Default)]
struct Tlbs([Mutex<HashMap<Vmid, Translation>>; VCPUS]);

impl Tlbs {
    fn forget_all(&self) {
        for tlb in &self.0 {
            // So that whoever does not wait for the end is found out.
            thread::yield_now();
            tlb.lock().unwrap().clear();
        }
    }

    fn forget(&self, vmid: Vmid) {
        for tlb in &self.0 {
            tlb.lock().unwrap().remove(&vmid);
        }
    }

    /// A guest access of a vCPU that is active on `root` under `vmid`.
    fn access(&self, vcpu: usize, vmid: Vmid, root: &Root) {
        let oldest = root.oldest.load(Ordering::Acquire);
        let mut tlb = self.0[vcpu].lock().unwrap();
        let used = *tlb.entry(vmid).or_insert_with(|| Translation {
            root: root.id,
            version: root.table.load(Ordering::Relaxed),
        });
        drop(tlb);
        assert_eq!(used.root, root.id, "a translation of another root under {vmid:?}");
        assert!(used.version >= oldest, "a translation that was invalidated under {vmid:?}");
    }
}

struct System {
    tlbs: Arc<Tlbs>,
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
        let forget = {
            let tlbs = Arc::clone(&tlbs);
            move || tlbs.forget_all()
        };
        Self {
            tlbs,
            vmids: Vmids::try_new(world::mmu(Host::new(), forget), BITS).unwrap(),
            roots: std::array::from_fn(|id| RwLock::new(Root::new(id as u64))),
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

    fn run_vcpu(&self, vcpu: usize) {
        let _running = Running(&self.running);
        let mut active = self.vmids.register().unwrap();
        let mut random = Random(vcpu as u64 + 1);
        for _ in 0..ENTRIES {
            let root = self.roots[random.below(ROOTS)].read().unwrap();
            for _ in 0..=random.below(4) {
                let vmid = active.activate(&root.tag).expect("there are more VMIDs than vCPUs");
                self.entered(vmid, root.id);
                // Now and then it does not exit while the others roll over several times.
                let stays = random.below(1000) == 0;
                for _ in 0..if stays { 200 } else { 3 } {
                    self.tlbs.access(vcpu, vmid, &root);
                    if stays {
                        thread::yield_now();
                    }
                }
                self.leaving(vmid);
            }
            active.deactivate();
        }
    }

    /// Changes tables, and retires roots, while vCPUs run.
    fn run_host(&self) {
        let mut random = Random(u64::MAX);
        while self.running.load(Ordering::Relaxed) > 0 {
            let root = &self.roots[random.below(ROOTS)];
            if random.below(16) == 0 {
                let mut root = root.write().unwrap();
                if let Some(vmid) = self.vmids.assigned(&root.tag) {
                    self.tlbs.forget(vmid);
                }
                self.vmids.retire(&root.tag);
                *root = Root::new(self.ids.fetch_add(1, Ordering::Relaxed));
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
