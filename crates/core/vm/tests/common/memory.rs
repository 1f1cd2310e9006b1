//! The host's memory in a test: the page at address `a` is in the frame of the same number, unless a test says
//! otherwise; and its caches, which write down what is cleaned.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::frames;
use mayfly_memslot::{Hva, PAGE_SHIFT};
use mayfly_platform::address::Pfn;
use mayfly_platform::frames::Frames;
use mayfly_platform::sync::AtomicU64;
use mayfly_stage2::{Level, Permissions};
use mayfly_vm::{Cache, CacheCapabilities, HostFault, HostMemory, Resolved};

type Hook = Box<dyn FnMut() + Send>;
type Kind = Box<dyn FnMut(Hva, Permissions, Resolved) -> Resolved + Send>;

pub(crate) struct Memory {
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

struct State {
    /// What is said of every page.
    level: Level,
    /// Whether the guest may write what it only reads.
    writable: bool,
    /// Pages that are not in the frame of their number.
    moved: BTreeMap<u64, Pfn>,
    fault: Option<HostFault>,
    kind: Option<Kind>,
    asked: Vec<(Hva, bool)>,
    told_clean: Vec<(Hva, Pfn, Level)>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let state = State {
            level: Level::PAGE,
            writable: true,
            moved: BTreeMap::new(),
            fault: None,
            kind: None,
            // Tests that count allocations have room for what is written down in them.
            asked: Vec::with_capacity(1 << 12),
            told_clean: Vec::new(),
        };
        Self { state: Mutex::new(state), hook: Mutex::new(None) }
    }

    /// Has it say of every page that it lies in a block of `level`.
    pub(crate) fn set_level(&self, level: Level) {
        self.state.lock().unwrap().level = level;
    }

    /// Whether a page that is read may be written as well.
    pub(crate) fn set_writable(&self, writable: bool) {
        self.state.lock().unwrap().writable = writable;
    }

    /// The page at `hva` is in frame `pfn` from now on.
    pub(crate) fn move_page(&self, hva: Hva, pfn: u64) {
        self.state.lock().unwrap().moved.insert(hva.get() >> PAGE_SHIFT, Pfn::new(pfn));
    }

    /// Has it fail, or no more.
    pub(crate) fn fail_with(&self, fault: Option<HostFault>) {
        self.state.lock().unwrap().fault = fault;
    }

    /// Has `kind` say what is at an address, of what is usual there, for who needs some right.
    pub(crate) fn set_kind(
        &self,
        kind: impl FnMut(Hva, Permissions, Resolved) -> Resolved + Send + 'static,
    ) {
        self.state.lock().unwrap().kind = Some(Box::new(kind));
    }

    /// What it was asked since the last time, and whether for writing.
    pub(crate) fn take_asked(&self) -> Vec<(Hva, bool)> {
        let asked = Vec::with_capacity(1 << 12);
        std::mem::replace(&mut self.state.lock().unwrap().asked, asked)
    }

    /// What it was told since the last time that is clean: where, from which frame on, and of which level.
    pub(crate) fn take_told_clean(&self) -> Vec<(Hva, Pfn, Level)> {
        std::mem::take(&mut self.state.lock().unwrap().told_clean)
    }

    /// Has `hook` called once, when it is next asked: it has made up its mind, and not answered yet.
    pub(crate) fn when_asked(&self, hook: impl FnMut() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

// SAFETY: nobody reads or writes a frame that it names.
unsafe impl HostMemory<Hva> for Memory {
    fn resolve(&self, backing: Hva, wanted: Permissions) -> Result<Resolved, HostFault> {
        let resolved = {
            let write = wanted == Permissions::WRITE;
            let mut state = self.state.lock().unwrap();
            state.asked.push((backing, write));
            let page = backing.get() >> PAGE_SHIFT;
            let moved = state.moved.get(&page).copied();
            let level = if moved.is_some() { Level::PAGE } else { state.level };
            let pfn = moved.unwrap_or(Pfn::new(page));
            let usual = Resolved::memory(pfn, level, write || state.writable);
            let resolved = match &mut state.kind {
                Some(kind) => kind(backing, wanted, usual),
                None => usual,
            };
            state.fault.map_or(Ok(resolved), Err)
        };
        // What it has said is not with its caller yet, as when a real one is preempted here.
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook();
        }
        resolved
    }

    fn cleaned(&self, backing: Hva, first: Pfn, level: Level) {
        self.state.lock().unwrap().told_clean.push((backing, first, level));
    }

    fn linear_map(&self) -> *const AtomicU64 {
        frames::arena().linear_map()
    }
}

/// What was done for some frames: the first, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kept {
    Cleaned(Pfn, u64),
    /// Cleaned and invalidated.
    Flushed(Pfn, u64),
    /// Invalidated for instructions.
    Fetched(Pfn, u64),
    /// Instruction caches were emptied.
    Emptied,
}

/// The most frames that are maintained together.
pub(crate) const PIECE: u64 = 64;

impl Kept {
    /// Both together, if `next` is another piece of the same.
    fn and(self, next: Self) -> Option<Self> {
        let follows = |first: Pfn, count: u64, next: Pfn| {
            count.is_multiple_of(PIECE) && first.get() + count == next.get()
        };
        match (self, next) {
            (Self::Cleaned(first, count), Self::Cleaned(next, more)) => {
                follows(first, count, next).then_some(Self::Cleaned(first, count + more))
            }
            (Self::Flushed(first, count), Self::Flushed(next, more)) => {
                follows(first, count, next).then_some(Self::Flushed(first, count + more))
            }
            (Self::Fetched(first, count), Self::Fetched(next, more)) => {
                follows(first, count, next).then_some(Self::Fetched(first, count + more))
            }
            _ => None,
        }
    }
}

/// Caches that write down what is maintained.
#[derive(Default)]
pub(crate) struct Caches {
    capabilities: Mutex<CacheCapabilities>,
    kept: Mutex<Vec<Kept>>,
    hook: Mutex<Option<Hook>>,
    on_clean: Mutex<Option<CleanHook>>,
}

type CleanHook = Box<dyn FnMut(u64) + Send>;

impl Caches {
    /// For VMs that are yet to be created.
    pub(crate) fn set_capabilities(&self, capabilities: CacheCapabilities) {
        *self.capabilities.lock().unwrap() = capabilities;
    }

    /// What was done since the last time.
    pub(crate) fn take(&self) -> Vec<Kept> {
        std::mem::take(&mut self.kept.lock().unwrap())
    }

    /// What was cleaned since the last time, which is all that was done: first frame, and how many.
    pub(crate) fn take_cleaned(&self) -> Vec<(Pfn, u64)> {
        let cleaned = |kept| match kept {
            Kept::Cleaned(first, count) => (first, count),
            other => panic!("{other:?}"),
        };
        self.take().into_iter().map(cleaned).collect()
    }

    /// Has `hook` called once, when something is done next, before it is.
    pub(crate) fn at_next(&self, hook: impl FnMut() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// Has `hook` told of each clean, of so many frames, before it is done; with an invalidation or without.
    pub(crate) fn at_each_clean(&self, hook: impl FnMut(u64) + Send + 'static) {
        *self.on_clean.lock().unwrap() = Some(Box::new(hook));
    }

    fn keep(&self, kept: Kept) {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook();
        }
        let mut all = self.kept.lock().unwrap();
        let longer = all.last().and_then(|last| last.and(kept));
        match (longer, all.last_mut()) {
            (Some(longer), Some(last)) => *last = longer,
            _ => all.push(kept),
        }
    }
}

// SAFETY: no guest reads or writes the frames.
unsafe impl Cache for Caches {
    fn capabilities(&self) -> CacheCapabilities {
        *self.capabilities.lock().unwrap()
    }

    fn clean(&self, first: Pfn, count: u64) {
        if let Some(hook) = &mut *self.on_clean.lock().unwrap() {
            hook(count);
        }
        self.keep(Kept::Cleaned(first, count));
    }

    fn clean_invalidate(&self, first: Pfn, count: u64) {
        if let Some(hook) = &mut *self.on_clean.lock().unwrap() {
            hook(count);
        }
        self.keep(Kept::Flushed(first, count));
    }

    fn invalidate_instructions(&self, first: Pfn, count: u64) {
        self.keep(Kept::Fetched(first, count));
    }

    fn invalidate_all_instructions(&self) {
        self.keep(Kept::Emptied);
    }
}
