//! The host's frames, of one line each, and caches that do the worst they may: a line is always in a cache, and so
//! stale as soon as memory is written past it; it is written back only when it is cleaned.

use std::sync::{Arc, Mutex};

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::sync::{Mutex as Sharing, MutexGuard};

use mayfly_memslot::Hva;
use mayfly_platform::Mmu;
use mayfly_platform::address::{PAGE_SIZE, Pfn};
use mayfly_platform::cache::{Cache, CacheCapabilities};
use mayfly_platform::sync::AtomicU64 as FrameWord;
use mayfly_stage2::{Level, Permissions};
use mayfly_vm::{HostFault, HostMemory, Resolved};

use crate::PAGES;

/// How often the host may move a page, at most.
const VERSIONS: u64 = 8;
/// What was in memory before the host made a frame zero.
const ANOTHERS: u64 = 0x5ec2e7;

#[derive(Clone, Copy)]
struct Line {
    memory: u64,
    cached: u64,
    dirty: bool,
    /// The frame is nobody's any more.
    withdrawn: bool,
    /// Nobody may write to it.
    sealed: bool,
}

/// Gives a page, which is shared, a frame of its own, and tells the VM.
type Break = Box<dyn Fn(&Memory, u64) + Send + Sync>;

/// Version `v` of page `p` is in frame `PAGES * (v + 1) + p`.
pub(crate) struct Memory {
    capabilities: CacheCapabilities,
    /// Whose frames they are.
    mmu: Arc<dyn Mmu>,
    versions: Vec<AtomicU64>,
    shared: Vec<AtomicBool>,
    /// Held while a page comes to be shared, and while it is broken.
    sharing: Sharing<Option<Break>>,
    /// Behind the checker's back: an access is one step.
    lines: Mutex<Vec<Line>>,
}

impl Memory {
    pub(crate) fn new(capabilities: CacheCapabilities, mmu: Arc<dyn Mmu>) -> Self {
        // The host has made every frame zero.
        let line =
            Line { memory: ANOTHERS, cached: 0, dirty: true, withdrawn: false, sealed: false };
        let lines = vec![line; (PAGES * (VERSIONS + 1)) as usize];
        let versions = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        let shared = (0..PAGES).map(|_| AtomicBool::new(false)).collect();
        let (sharing, lines) = (Sharing::new(None), Mutex::new(lines));
        Self { capabilities, mmu, versions, shared, sharing, lines }
    }

    fn pfn(&self, page: u64) -> u64 {
        let version = self.versions[page as usize].load(Ordering::Relaxed);
        assert!(version < VERSIONS);
        PAGES * (version + 1) + page
    }

    /// Copies `page` to another frame, through the caches.
    pub(crate) fn migrate(&self, page: u64) {
        let (old, _) = self.copy(page);
        self.withdraw(old);
    }

    /// Copies `page` to another frame, through the caches, and tells from where to where.
    fn copy(&self, page: u64) -> (u64, u64) {
        let old = self.pfn(page);
        self.versions[page as usize].fetch_add(1, Ordering::Relaxed);
        let mut lines = self.lines.lock().unwrap();
        let copied = lines[old as usize].cached;
        let new = &mut lines[(old + PAGES) as usize];
        (new.cached, new.dirty) = (copied, true);
        (old, old + PAGES)
    }

    /// Nobody uses the frame from here on.
    pub(crate) fn withdraw(&self, pfn: u64) {
        self.lines.lock().unwrap()[pfn as usize].withdrawn = true;
    }

    /// As [`Memory::withdraw`], of every frame.
    pub(crate) fn withdraw_all(&self) {
        self.lines.lock().unwrap().iter_mut().for_each(|line| line.withdrawn = true);
    }

    /// What the host reads of `page`, through the caches.
    pub(crate) fn host_read(&self, page: u64) -> u64 {
        let pfn = self.pfn(page);
        self.lines.lock().unwrap()[pfn as usize].cached
    }

    /// Has pages that are shared and written broken by this; none are shared from then on, if it is nothing.
    pub(crate) fn break_by(&self, breaks: Option<Break>) {
        *self.sharing() = breaks;
    }

    pub(crate) fn sharing(&self) -> MutexGuard<'_, Option<Break>> {
        self.sharing.lock().unwrap()
    }

    pub(crate) fn is_shared(&self, page: u64) -> bool {
        self.shared[page as usize].load(Ordering::Acquire)
    }

    /// Has `page`, which nobody writes to, shared from here on, in another frame; or in one of its own.
    pub(crate) fn set_shared(&self, page: u64, shared: bool) -> (u64, u64) {
        let before = self.pfn(page);
        self.lines.lock().unwrap()[before as usize].sealed = true;
        let (old, new) = self.copy(page);
        self.lines.lock().unwrap()[new as usize].sealed = shared;
        self.shared[page as usize].store(shared, Ordering::Release);
        (old, new)
    }

    /// The frame that `page` is in, which is shared, and the one that it gets next.
    pub(crate) fn frames(&self, page: u64) -> [u64; 2] {
        let old = self.pfn(page);
        [old, old + PAGES]
    }

    /// Copies what is shared, through the caches. Nobody may write to either.
    pub(crate) fn copy_shared(&self, [old, new]: [u64; 2]) {
        let mut lines = self.lines.lock().unwrap();
        let copied = lines[old as usize].cached;
        let new = &mut lines[new as usize];
        (new.cached, new.dirty, new.sealed) = (copied, true, true);
    }

    /// `page` is in the frame that it was copied to, alone, and nobody uses the old one any more.
    pub(crate) fn is_in_copy(&self, page: u64, [old, new]: [u64; 2]) {
        self.withdraw(old);
        self.lines.lock().unwrap()[new as usize].sealed = false;
        self.versions[page as usize].fetch_add(1, Ordering::Relaxed);
        self.shared[page as usize].store(false, Ordering::Release);
    }

    pub(crate) fn read(&self, pfn: u64, cached: bool) -> u64 {
        let line = self.line(pfn);
        if cached { line.cached } else { line.memory }
    }

    pub(crate) fn write(&self, pfn: u64, cached: bool, value: u64) {
        self.line(pfn);
        let line = &mut self.lines.lock().unwrap()[pfn as usize];
        assert!(!line.sealed, "frame {pfn:#x} was written while it was shared");
        if cached {
            (line.cached, line.dirty) = (value, true);
        } else {
            line.memory = value;
        }
    }

    fn line(&self, pfn: u64) -> Line {
        let line = self.lines.lock().unwrap()[pfn as usize];
        assert!(!line.withdrawn, "frame {pfn:#x} was used after it was taken away");
        line
    }

    fn maintain(&self, first: Pfn, count: u64, invalidate: bool) {
        for pfn in first.get()..first.get() + count {
            // Others come in between two lines.
            shuttle::thread::yield_now();
            let line = &mut self.lines.lock().unwrap()[pfn as usize];
            if std::mem::take(&mut line.dirty) {
                line.memory = line.cached;
            }
            if invalidate {
                line.cached = line.memory;
            }
        }
    }
}

// SAFETY: what frames hold is numbers in this model.
unsafe impl HostMemory<Hva> for Memory {
    fn resolve(&self, backing: Hva, wanted: Permissions) -> Result<Resolved, HostFault> {
        let write = wanted == Permissions::WRITE;
        let page = backing.get() / PAGE_SIZE;
        let mut changed = false;
        if write && self.is_shared(page) {
            let breaks = self.sharing();
            if self.is_shared(page) {
                breaks.as_ref().expect("it was shared by who breaks it")(self, page);
                // It need not say so.
                changed = thread_rng().gen_bool(0.5);
            }
        }
        let (pfn, block) = (self.pfn(page), Level::MIB2.pages());
        let (first, base) = (page - page % block, pfn - pfn % block);
        let is_alone = |page| !self.is_shared(page);
        let whole = (0..block)
            .all(|offset| self.pfn(first + offset) == base + offset && is_alone(first + offset));
        let level = if whole { Level::MIB2 } else { Level::PAGE };
        // What is merged again by now is refused.
        Ok(Resolved { changed, ..Resolved::memory(Pfn::new(pfn), level, write || is_alone(page)) })
    }

    fn linear_map(&self) -> *const FrameWord {
        self.mmu.linear_map()
    }
}

// SAFETY: does it to each line, under the lock.
unsafe impl Cache for Memory {
    fn capabilities(&self) -> CacheCapabilities {
        self.capabilities
    }

    fn clean(&self, first: Pfn, count: u64) {
        self.maintain(first, count, false);
    }

    fn clean_invalidate(&self, first: Pfn, count: u64) {
        self.maintain(first, count, true);
    }

    fn invalidate_instructions(&self, _: Pfn, _: u64) {
        unreachable!("instruction caches see what is written");
    }

    fn invalidate_all_instructions(&self) {
        unreachable!("instruction caches see what is written");
    }
}
